"""Configuration of the documentation site, which ``make docs`` builds with Sphinx.

Pages are Markdown that repository browsers also display well. Reference pages (REST, topics,
objects) have a short introduction; the build adds the parts that are generated from the code.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # tools.docs has the generated parts

from tools.docs import site_extension  # noqa: E402 - found by the line above

project = "Stromboli"
author = "The Stromboli authors"
extensions = ["myst_parser", "sphinx_copybutton"]
nitpicky = True
myst_heading_anchors = 4
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
html_theme = "furo"
html_title = "Stromboli"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
setup = site_extension.setup
