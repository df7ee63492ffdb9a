import "./theme.css";
import { render } from "preact";
import { App } from "./app";

const page = document.getElementById("page");
if (page) {
  page.replaceChildren();
  render(<App />, page);
}
