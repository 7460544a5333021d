/** The part of uPlot that the pages use. */

export type Columns = (number | null)[][];

export interface Options {
  width: number;
  height: number;
  scales: Record<string, { time?: boolean; range?: (chart: unknown, least: number | null, greatest: number | null) => [number, number] }>;
  axes: object[];
  series: { label: string; stroke?: string; width?: number; dash?: number[] }[];
}

export default class uPlot {
  constructor(options: Options, data: Columns, place: HTMLElement);
  setData(data: Columns): void;
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
}
