/** A button that puts a text on the clipboard, and says so. */

import { useState } from "preact/hooks";

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // file:// and plain http have no clipboard API: the old way.
    const area = document.createElement("textarea");
    area.value = text;
    area.style.position = "fixed";
    area.style.opacity = "0";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export function Copy({ text, label = "Copy" }: { text: string | (() => string | Promise<string>); label?: string }) {
  const [told, tell] = useState("");
  const copy = async (): Promise<void> => {
    try {
      await copyText(typeof text === "string" ? text : await text());
      tell("Copied");
    } catch {
      tell("Cannot be had");
    }
    setTimeout(() => tell(""), 1200);
  };
  return (
    <button type="button" class="plain" onClick={() => void copy()}>
      <span aria-live="polite">{told || label}</span>
    </button>
  );
}
