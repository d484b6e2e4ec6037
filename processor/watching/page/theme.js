// Light or dark: what the system prefers, or what was chosen here.  A classic script, so that
// the choice holds before anything is drawn.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const chosen = localStorage.getItem("ikebana-theme");
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => (button.textContent = isDark() ? "Light" : "Dark");
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      localStorage.setItem("ikebana-theme", root.dataset.theme);
      name();
    });
    dark.addEventListener("change", name);
    name();
  });
})();
