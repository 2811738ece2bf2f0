// Runs before the page is drawn, so that a chosen theme does not flash.
"use strict";
const chosenTheme = localStorage.getItem("theme");
if (chosenTheme === "light" || chosenTheme === "dark") document.documentElement.dataset.theme = chosenTheme;
