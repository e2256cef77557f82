// The entry point: applies the stored theme and renders the app.
import { render } from "preact";
import "./style/base.css";
import "./style/frame.css";
import "./style/overview.css";
import "./style/service.css";
import "./style/maps.css";
import "./style/gateways.css";
import { App } from "./ui/App";
import { apply, chosen } from "./ui/theme";

apply(chosen());
const root = document.getElementById("app");
if (root) render(<App />, root);
