/** A button that copies a text to the clipboard and confirms it. */

import { useState } from "preact/hooks";

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // file:// and plain http pages have no clipboard API.
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

export function Copy({
  text,
  label = "Copy",
}: {
  text: string | (() => string | Promise<string>);
  label?: string;
}) {
  const [result, setResult] = useState("");
  const copy = async (): Promise<void> => {
    try {
      await copyText(typeof text === "string" ? text : await text());
      setResult("Copied");
    } catch {
      setResult("Copy failed");
    }
    setTimeout(() => setResult(""), 1200);
  };
  return (
    <button type="button" class="plain" onClick={() => void copy()}>
      <span aria-live="polite">{result || label}</span>
    </button>
  );
}
