/** The hooks of Preact that the pages use. */

type Setter<T> = (next: T | ((old: T) => T)) => void;

export function useState<T>(first: T | (() => T)): [T, Setter<T>];
export function useRef<T>(first: T): { current: T };
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useErrorBoundary(report?: (error: unknown) => void): [any, () => void];
