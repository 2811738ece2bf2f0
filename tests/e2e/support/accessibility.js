(() => {
  const found = [];
  const name = it => `${it.tagName.toLowerCase()}${it.id ? "#" + it.id : ""}.${it.getAttribute("class") || ""} ` +
    JSON.stringify((it.innerText || it.getAttribute("href") || "").slice(0, 40));
  const bad = (rule, it) => found.push(`${rule}: ${it instanceof Element ? name(it) : it}`);
  const isShown = it => it.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
    !it.closest(".hidden, .skip");
  const label = it => (it.getAttribute("aria-label") || it.title || it.innerText ||
    [...(it.labels || [])].map(one => one.innerText).join(" ") ||
    (it.getAttribute("aria-labelledby") || "").split(" ")
      .map(id => document.getElementById(id)?.innerText || "").join(" ")).trim();
  if (!document.documentElement.lang) bad("language", "html");
  if (!document.title.trim()) bad("title", "html");
  if (document.querySelectorAll("main").length !== 1) bad("one main", "body");
  if (!document.querySelector("a.skip[href='#main']")) bad("skip link", "body");
  if (document.querySelectorAll("h1").length > 1) bad("one h1", "body");
  let level = 0;
  for (const it of document.querySelectorAll("h1, h2, h3, h4")) {
    const own = Number(it.tagName[1]);
    if (level && own > level + 1) bad("heading level", it);
    level = own;
  }
  if (!level) bad("headings", "body");
  const ids = new Set();
  for (const it of document.querySelectorAll("[id]")) {
    if (ids.has(it.id)) bad("unique id", it);
    ids.add(it.id);
  }
  for (const it of document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, dialog[open]")) {
    if (isShown(it) && !label(it)) bad("name", it);
  }
  for (const it of document.querySelectorAll("svg, img")) {
    if (!it.closest("[aria-hidden]") && !label(it) && !it.getAttribute("alt")) bad("image name", it);
  }
  for (const it of document.querySelectorAll("table")) {
    if (!it.querySelector("th[scope]")) bad("header cells", it);
  }
  for (const it of document.querySelectorAll("th:not([scope])")) bad("scope", it);
  for (const it of document.querySelectorAll("[tabindex]")) if (it.tabIndex > 0) bad("tabindex", it);
  for (const it of document.querySelectorAll("*")) {
    const style = getComputedStyle(it);
    const scrolls = /auto|scroll/.test(style.overflowX + style.overflowY) &&
      (it.scrollWidth > it.clientWidth + 1 || it.scrollHeight > it.clientHeight + 1);
    const isReached = it.tabIndex >= 0 || it.querySelector("a, button, input, select, [tabindex='0']");
    if (scrolls && isShown(it) && it !== document.documentElement && !isReached) bad("reachable scrolling", it);
  }
  for (const it of document.querySelectorAll("a, button, input:not([type=hidden]), select")) {
    if (!isShown(it) || getComputedStyle(it).display === "inline" || it.type === "checkbox") continue;
    const box = it.getBoundingClientRect();
    if (box.height < 24 || box.width < 24) bad(`target ${Math.round(box.width)}x${Math.round(box.height)}`, it);
  }
  const parse = text => {
    const parts = text.match(/[\d.]+/g)?.map(Number) || [0, 0, 0, 0];
    return { rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1 };
  };
  const luminance = rgb => rgb.map(it => it / 255)
    .map(it => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
    .reduce((sum, it, at) => sum + it * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = it => {
    for (let at = it; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.alpha === 1) return colour.rgb;
    }
    return [255, 255, 255];
  };
  const seen = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const it = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || seen.has(it) || !isShown(it)) continue;
    if (it.closest("option, noscript, script, template")) continue;
    seen.add(it);
    const style = getComputedStyle(it);
    const [a, b] = [luminance(parse(style.color).rgb), luminance(behind(it))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (isLarge ? 3 : 4.5)) bad(`contrast ${ratio.toFixed(2)}`, it);
  }
  return JSON.stringify(found);
})()
