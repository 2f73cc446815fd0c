// Images of the next message: pasted, dropped or picked, as data URLs.

import { byId, element, notify } from "./dom.js";

const TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MAX_BYTES = 8 * 1024 * 1024; // as base64 it still fits into a request of 16 MB

let urls = [];

export function take() {
  const taken = urls;
  urls = [];
  show();
  return taken;
}

export function put(given) {
  urls = [...given];
  show();
}

function show() {
  byId("images").replaceChildren(
    ...urls.map((url, index) =>
      element(
        "li",
        {},
        element("img", { src: url, alt: `Image ${index + 1}` }),
        element("button", { type: "button", "aria-label": `Remove image ${index + 1}`, onclick: () => put(urls.toSpliced(index, 1)) }, "×"),
      ),
    ),
  );
}

async function add(files) {
  for (const file of files) {
    if (!TYPES.has(file.type)) notify(`${file.name} is not a PNG, JPEG, GIF or WebP image.`, { seconds: 8 });
    else if (file.size > MAX_BYTES) notify(`${file.name} is larger than 8 MB.`, { seconds: 8 });
    else put([...urls, await read(file)]);
  }
}

function read(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

export function listen() {
  byId("pick").addEventListener("change", async (event) => {
    await add([...event.target.files]);
    event.target.value = "";
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length) event.preventDefault();
    add(files);
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    add([...(event.dataTransfer?.files ?? [])]);
  });
}
