/** The part of htm that the pages use. */

import type { Child, VNode } from "./preact.d.ts";

type Html = (strings: TemplateStringsArray, ...values: unknown[]) => VNode;
/** ``this[0]``: whether htm may reuse the element. It returns a VNode, which TypeScript takes for a class here. */
type Element = (this: unknown[], type: unknown, props: Record<string, unknown> | null, ...children: Child[]) => unknown;

declare const htm: { bind(element: Element): Html };
export default htm;
