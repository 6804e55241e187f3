/** The title of the page, by which people tell tabs apart, and browsers keep it. */
import { useEffect } from "preact/hooks";

/** A view that shows one thing among many names it; until then the view's own name stands there. */
export function useTitle(text: string): void {
  useEffect(() => {
    document.title = `${text} – Radserve`;
  }, [text]);
}
