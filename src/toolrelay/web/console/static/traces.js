// The page of traces: the list with its filters, or one turn.

import { request } from "./api.js";
import { ApprovalDesk } from "./approvals.js";
import { byId, element, formatTime, notify } from "./dom.js";
import { TraceView } from "./trace.js";
import { formatDuration } from "./waterfall.js";

const RECORDS = {
  tools: "Recorded are turns with gateway tools, stored responses and conversations. To see every turn here, set record = \"all\" under [store] in toolrelay.toml.",
  all: "Every turn is recorded from now on.",
  none: "Nothing is recorded on the disk ([store] record = \"none\"). Turns are kept in memory and are gone after a restart.",
};

let next = null; // the cursor of the next page
let view = null; // the turn that is shown
let wanted = 0; // the number of the last search: answers of earlier ones are ignored

const filters = () => ({
  model: byId("filter-model").value,
  status: byId("filter-status").value,
  tool: byId("filter-tool").value.trim(),
  q: byId("filter-words").value.trim(),
});

function describe(turn) {
  const tokens = turn.output === null ? "" : `${turn.input} tokens in, ${turn.output} out`;
  const questions = turn.questions ? `${turn.questions} ${turn.questions === 1 ? "question" : "questions"}` : "";
  const facts = [formatTime(turn.created_at), turn.model, turn.wire, formatDuration(turn.ms), tokens, turn.tools.join(", "), questions];
  return element(
    "li",
    {},
    element("a", { href: `#${encodeURIComponent(turn.id)}` }, turn.prompt.trim() || "(no text)"),
    " ",
    element("strong", { class: `status ${turn.status}` }, turn.error ? `${turn.status}: ${turn.error}` : turn.status),
    element("p", { class: "hint" }, facts.filter(Boolean).join(" · ")),
  );
}

function explain({ traces, searched, record }, isFirst) {
  const isFiltered = Object.values(filters()).some(Boolean);
  if (searched && next) return `Looked through ${searched} turns${isFirst ? "" : " more"}. There are older ones.`;
  if (traces.length || !isFirst) return "";
  return isFiltered ? "No turn fits." : `Nothing is recorded yet. ${RECORDS[record] ?? ""}`;
}

async function search(isFirst) {
  const number = ++wanted;
  const query = new URLSearchParams(Object.entries(filters()).filter(([, value]) => value));
  if (!isFirst && next) query.set("before", next);
  try {
    const page = await request("GET", `/api/traces?${query}`);
    if (number !== wanted) return;
    next = page.next;
    const made = page.traces.map(describe);
    if (isFirst) byId("turns").replaceChildren(...made);
    else byId("turns").append(...made);
    byId("list-note").textContent = explain(page, isFirst);
    byId("more").hidden = !next;
    byId("more").textContent = page.searched ? "Search older turns" : "Show older turns";
    if (!isFirst) made[0]?.querySelector("a").focus();
  } catch (error) {
    report(error);
  }
}

function report(error) {
  if (error.name === "AbortError") return;
  const link = error.status === 401 ? { href: "/console/sign-in", text: "Sign in" } : null;
  notify(error.message, { link, key: `error ${error.status}` });
}

async function loadModels() {
  try {
    const { data } = await request("GET", "/v1/models");
    byId("filter-model").append(...data.map(({ id }) => element("option", { value: id }, id)));
  } catch (error) {
    report(error);
  }
}

function show() {
  if (location.hash === "#main") return;
  let id = location.hash.slice(1);
  try {
    id = decodeURIComponent(id);
  } catch {
    // An address that was cut: the gateway says that there is no such trace.
  }
  view?.close();
  view = null;
  byId("list-view").hidden = Boolean(id);
  byId("trace-view").hidden = !id;
  if (id) {
    view = new TraceView(byId("trace-view"), id, report);
    view.open();
  } else {
    document.title = "Traces – Toolrelay";
    search(true);
  }
}

byId("filters").addEventListener("submit", (event) => {
  event.preventDefault();
  search(true);
});
for (const id of ["filter-model", "filter-status"]) byId(id).addEventListener("change", () => search(true));
byId("more").addEventListener("click", () => search(false));
window.addEventListener("hashchange", show);
loadModels();
show();
new ApprovalDesk({}).start();
