// A form for the arguments of a tool, made from its JSON schema. What a form cannot show is edited as JSON.

import { element } from "./dom.js";

let count = 0;

/** Fields for all arguments. `read` returns the arguments, or throws an Error that says what is wrong. */
export class ArgumentForm {
  constructor(values, schema, onChange, hidden = []) {
    this.values = isObject(values) ? values : null;
    this.raw = null;
    this.onChange = onChange;
    this.hidden = hidden;
    this.schema = schema;
    this.area = element("div", { class: "fields" });
    this.toggle = element("button", { type: "button", class: "link", onclick: () => this.switch() }, "Edit as JSON");
    this.node = element("div", {}, this.area, this.toggle);
    if (this.values && isObject(schema?.properties)) this.showFields(this.values);
    else {
      this.showRaw(values);
      this.toggle.hidden = true;
    }
  }

  showFields(values) {
    this.raw = null;
    const required = new Set(Array.isArray(this.schema.required) ? this.schema.required : []);
    const names = [...new Set([...Object.keys(this.schema.properties), ...Object.keys(values)])];
    this.fields = names
      .filter((name) => !this.hidden.includes(name))
      .map((name) => new Field(name, schemaOf(this.schema, name), values[name], required.has(name), this.onChange));
    this.area.replaceChildren(...this.fields.map((field) => field.node));
    this.toggle.textContent = "Edit as JSON";
    this.hiddenValues = Object.fromEntries(this.hidden.filter((name) => name in values).map((name) => [name, values[name]]));
  }

  showRaw(values) {
    const id = `field-${(count += 1)}`;
    this.raw = element("textarea", { id, rows: "8", spellcheck: "false", oninput: this.onChange });
    this.raw.value = JSON.stringify(values, null, 2);
    this.area.replaceChildren(element("label", { for: id }, "Arguments as JSON"), this.raw);
    this.toggle.textContent = "Edit as a form";
  }

  switch() {
    try {
      if (this.raw) {
        const values = this.read();
        if (!isObject(values)) throw new Error("The arguments must be an object.");
        this.showFields(values);
      } else this.showRaw(this.read());
      this.onChange();
    } catch {
      this.raw?.focus(); // the text is no JSON yet: stay
    }
  }

  read() {
    if (this.raw) return parse("The arguments", this.raw.value);
    const found = { ...this.hiddenValues };
    for (const field of this.fields) {
      const value = field.read();
      if (value !== undefined) found[field.name] = value;
    }
    return found;
  }
}

/** Return the schema of an argument. What is not an object says nothing about it. */
function schemaOf({ properties }, name) {
  return Object.hasOwn(properties, name) && isObject(properties[name]) ? properties[name] : {};
}

class Field {
  constructor(name, schema, value, isRequired, onChange) {
    Object.assign(this, { name, value, isRequired, kind: kindOf(schema, value) });
    const id = `field-${(count += 1)}`;
    this.input = this.makeInput(schema, id);
    this.input.addEventListener("input", onChange);
    const label = element("label", { for: id }, name, isRequired ? "" : " (optional)");
    const hint = schema.description ? element("small", { id: `${id}-hint` }, String(schema.description)) : null;
    if (hint) this.input.setAttribute("aria-describedby", hint.id);
    this.node = element("div", { class: `field ${this.kind}` }, label, this.input, hint);
  }

  makeInput(schema, id) {
    const value = this.value;
    let input;
    if (this.kind === "enum") {
      this.options = schema.enum;
      input = element("select", { id }, this.isRequired ? null : element("option", { value: "" }, "(not set)"));
      this.options.forEach((option, index) => input.append(element("option", { value: String(index) }, String(option))));
      const index = this.options.indexOf(value);
      input.value = index < 0 ? "" : String(index);
    } else if (this.kind === "boolean" && (this.isRequired || value !== undefined)) {
      input = element("input", { id, type: "checkbox" });
      input.checked = value === true;
    } else if (this.kind === "boolean") {
      this.kind = "enum";
      return this.makeInput({ enum: [true, false] }, id);
    } else if (this.kind === "number") {
      input = element("input", { id, type: "number", step: schema.type === "integer" ? "1" : "any" });
      input.value = value ?? "";
    } else {
      const text = this.kind === "strings" ? (value ?? []).join("\n") : this.kind === "string" ? (value ?? "") : value === undefined ? "" : JSON.stringify(value, null, 2);
      const isLong = this.kind !== "string" || text.length > 60 || text.includes("\n");
      input = isLong ? element("textarea", { id, rows: "3" }) : element("input", { id, type: "text" });
      if (this.kind === "strings") input.placeholder = "One per line";
      input.value = text;
    }
    return input;
  }

  /** Return the value; undefined: it is not set. */
  read() {
    const text = this.input.value;
    const isUnset = text === "" && this.value === undefined && !this.isRequired;
    switch (this.kind) {
      case "boolean":
        return this.input.checked;
      case "enum":
        return text === "" ? undefined : this.options[Number(text)];
      case "number":
        if (this.input.validity.badInput) throw new Error(`${this.name} is not a number.`);
        if (text === "" && this.isRequired) throw new Error(`${this.name} needs a number.`);
        return text === "" ? undefined : Number(text);
      case "strings":
        return isUnset ? undefined : text.split("\n").filter(Boolean);
      case "string":
        return isUnset ? undefined : text;
      default:
        return text.trim() === "" ? undefined : parse(this.name, text);
    }
  }
}

function kindOf(schema, value) {
  const fits = (test) => value === undefined || test(value);
  const isText = (each) => typeof each === "string";
  if (Array.isArray(schema.enum) && schema.enum.every((each) => !isObject(each) && !Array.isArray(each))) return fits((each) => schema.enum.includes(each)) ? "enum" : "json";
  if (schema.type === "string" && fits((each) => isText(each) && !each.includes("\r"))) return "string";
  if (["number", "integer"].includes(schema.type) && fits(Number.isFinite)) return "number";
  if (schema.type === "boolean" && fits((each) => typeof each === "boolean")) return "boolean";
  const isList = schema.type === "array" && schema.items?.type === "string" && !schema.items.enum;
  if (isList && fits((each) => Array.isArray(each) && each.every((entry) => isText(entry) && entry !== "" && !entry.includes("\n")))) return "strings";
  return "json";
}

function parse(name, text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name}: this is not JSON.`);
  }
}

export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return a text with sorted keys, to compare values. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (isObject(value)) return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
  return JSON.stringify(value) ?? "nothing";
}

/** Return what differs between two sets of arguments, as lines. */
export function differences(before, after) {
  if (!isObject(before) || !isObject(after)) return canonical(before) === canonical(after) ? [] : [`${canonical(before)} → ${canonical(after)}`];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.filter((name) => canonical(before[name]) !== canonical(after[name])).map((name) => `${name}: ${canonical(before[name])} → ${canonical(after[name])}`);
}
