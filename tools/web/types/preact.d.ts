/** The part of Preact that the pages use. */

export interface VNode {
  type: unknown;
  props: Record<string, unknown>;
}
export type Child = VNode | string | number | boolean | null | undefined | Child[];

export function h(type: unknown, props: Record<string, unknown> | null, ...children: Child[]): VNode;
export function render(child: Child, parent: Element | null): void;
