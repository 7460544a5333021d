/** Rectangles painted pixel by pixel: a hundred thousand small ones take a tenth of a canvas's time. */

export class PixelBrush {
  #columns;
  #rows;
  #ratio;
  #pixels;
  #colour = 0;
  #context;

  /**
   * @param {number} width @param {number} height of the picture
   * @param {number} ratio pixels per unit
   */
  constructor(width, height, ratio) {
    const canvas = document.createElement("canvas");
    canvas.width = this.#columns = Math.round(width * ratio);
    canvas.height = this.#rows = Math.round(height * ratio);
    this.#ratio = ratio;
    this.#pixels = new Uint32Array(this.#columns * this.#rows);
    this.#context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  }

  /** @param {string} colour without transparency */
  set fillStyle(colour) {
    this.#context.fillStyle = colour;
    // The context has turned the colour into #rrggbb; pixels are stored as alpha, blue, green, red.
    const value = Number.parseInt(this.#context.fillStyle.slice(1), 16);
    this.#colour = (0xff000000 | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
  }

  /** @param {number} left @param {number} top @param {number} width @param {number} height */
  fillRect(left, top, width, height) {
    const [ratio, columns] = [this.#ratio, this.#columns];
    const first = Math.max(0, Math.round(left * ratio));
    const end = Math.min(columns, Math.max(first + 1, Math.round((left + width) * ratio)));
    const last = Math.min(this.#rows, Math.round((top + height) * ratio));
    if (end <= first) return;
    const [pixels, colour] = [this.#pixels, this.#colour];
    for (let row = Math.max(0, Math.round(top * ratio)); row < last; row += 1) {
      for (let i = row * columns + first; i < row * columns + end; i += 1) pixels[i] = colour;
    }
  }

  /** Put the rectangles on a picture. @param {CanvasRenderingContext2D} context */
  drawOn(context) {
    const bytes = new Uint8ClampedArray(this.#pixels.buffer);
    this.#context.putImageData(new ImageData(bytes, this.#columns, this.#rows), 0, 0);
    context.drawImage(this.#context.canvas, 0, 0, this.#columns / this.#ratio, this.#rows / this.#ratio);
  }
}
