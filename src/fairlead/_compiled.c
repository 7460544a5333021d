/* The inner loops of every round, compiled: the same as the Python code, bit for bit.

   `solve_small` is small_system.solve_small_system, `balance` is WarmStage._balance; `forward` and
   `reallocated` are Account.advanced_to and with_new_shares, `credit` is LeaseTable.credit, `urgent`
   is urgency.urgent_entries, `assign` and `fill` are RoundSelection's, with AssignmentExchange,
   `sell_singles` is Hadar's allocate_queue for jobs of one device, `price_options` and
   `cheapest_gains` are OptionProblem.priced and least_per_gain, and `draw_lottery` is
   lottery._Draws.draw_with_queue; `choose_pairs`, `stage_use`, `tied_columns` and `next_marginal` are
   ClassPairs.choose, use, tied and next_marginal; `assign_units` is UnitSelection's assign for jobs of
   one device; `pass_ranks` is pass_ranks and `device_turns` DeviceTurns._take; `slice_rounds` and
   `quantum_rounds` are the rounds of sim.turn_rounds by SliceTurns.next_turn and QuantumTurns.next_turn;
   `near_pairs` is NearPairs._near; `served_tickets` is gandiva_fair's serviceable_tickets and
   `migration_gains` its _gains; `fork_copies` is _CopyOffers.taken. `match_singles` has no
   counterpart: it solves the program of policies.fairlead where its optimum is the only one. Read
   those first: they explain the reasons; this file only repeats them in C. Arrays are numpy's, of
   doubles or 64-bit integers, row by row; sums are made in the same order. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1, BUSY = -2, NOBODY = -1 };
enum { SHARE, OWED, CARRIED, RECEIVED, TABLES };
enum { MAX_EXCHANGES = 64, SOON = 24, MAX_ARGUMENTS = 19, MAX_WAYS = 1 << 24, MAX_VOID_DRAWS = 32 };
enum { MAX_COLUMNS = 16, MAX_TRIALS = 32 };

static const double LEAST = 1e-9, SINGULAR = 1e-12, MIN_GAIN = 1e-9;
static const double TIED = 1e-10, NEAR = 1e-7;
static const double FACE_PAYS = 1e-10, FACE_PIVOT = 1e-9, FACE_TIED = 1e-12, FACE_NOTHING = 1e-13;
static const double AT_LEVEL = 1e-13, BELOW_CAP = 1e-9, ABOVE_NOTHING = 1e-6;

/* An argument that is an array. */
typedef struct {
    Py_buffer view;
    int open;
} Array;

static int take(PyObject *arguments, Array *array, char letter)
{
    int integers = letter == 'i' || letter == 'I' || letter == 'j';
    int rows = letter == 'D' || letter == 'I', filled = letter == 'e' || letter == 'j';
    int flags = PyBUF_FORMAT | (rows ? PyBUF_STRIDES : PyBUF_C_CONTIGUOUS);
    if (PyObject_GetBuffer(arguments, &array->view, flags | (filled ? PyBUF_WRITABLE : 0)) < 0)
        return 0;
    array->open = 1;
    const char *format = array->view.format;
    int fits = integers ? !strcmp(format, "l") || !strcmp(format, "q") : !strcmp(format, "d");
    if (!fits || array->view.itemsize != 8 || array->view.ndim < 1) {
        PyErr_SetString(PyExc_TypeError, "an array of doubles or of 64-bit integers is needed");
        return 0;
    }
    return 1;
}

/* The arguments of a call, by their places. */
typedef struct {
    Array arrays[MAX_ARGUMENTS];
    double numbers[MAX_ARGUMENTS];
} Arguments;

/* Take arguments as their letters say. x: a number; d and i: a whole array of doubles or integers;
   D and I: one whose rows may lie apart; e and j: one that is filled; ? before it: or None; and .:
   something else. */
static int take_all(Arguments *taken, PyObject *const *args, Py_ssize_t n_args, const char *letters)
{
    Py_ssize_t place = 0;
    for (const char *letter = letters; *letter; letter++, place++) {
        int optional = *letter == '?';
        letter += optional;
        if (place >= n_args || *letter == '.' || (optional && args[place] == Py_None))
            continue;
        if (*letter == 'x') {
            taken->numbers[place] = PyFloat_AsDouble(args[place]);
            if (PyErr_Occurred())
                return 0;
        } else if (!take(args[place], &taken->arrays[place], *letter)) {
            return 0;
        }
    }
    if (place != n_args)
        PyErr_Format(PyExc_TypeError, "%zd arguments are needed, not %zd", place, n_args);
    return place == n_args;
}

/* Give an answer, and the arguments back. */
static PyObject *give(PyObject *answer, Arguments *taken)
{
    for (int i = 0; i < MAX_ARGUMENTS; i++)
        if (taken->arrays[i].open)
            PyBuffer_Release(&taken->arrays[i].view);
    return answer;
}

static Py_ssize_t items(const Array *array)
{
    return array->view.len / 8;
}

/* Where a row begins. */
static const void *row_of(const Array *array, Py_ssize_t row)
{
    return (const char *)array->view.buf + row * array->view.strides[0];
}

static int wrong_sizes(void)
{
    PyErr_SetString(PyExc_ValueError, "the arrays do not fit together");
    return 0;
}

/* -- shares ----------------------------------------------------------------------------------- */

/* Equations, each its coefficients and then its right side, are overwritten; 0: singular. */
static int solved(double **rows, Py_ssize_t size, double *unknowns)
{
    for (Py_ssize_t i = 0; i < size; i++) {
        double most = 0.0;
        Py_ssize_t p = i;
        for (Py_ssize_t r = i; r < size; r++)
            if (fabs(rows[r][i]) > most) {
                most = fabs(rows[r][i]);
                p = r;
            }
        if (most < SINGULAR)
            return 0;
        double *pivot = rows[p];
        rows[p] = rows[i];
        rows[i] = pivot;
        double scale = 1.0 / pivot[i];
        for (Py_ssize_t r = i + 1; r < size; r++) {
            double factor = rows[r][i] * scale;
            if (factor != 0.0)
                for (Py_ssize_t c = i + 1; c <= size; c++)
                    rows[r][c] -= factor * pivot[c];
        }
    }
    for (Py_ssize_t i = size - 1; i >= 0; i--) {
        double rest = rows[i][size];
        for (Py_ssize_t j = i + 1; j < size; j++)
            rest -= rows[i][j] * unknowns[j];
        unknowns[i] = rest / rows[i][i];
    }
    return 1;
}

/* Read a list of so many floats; 0 with an error set if it is none. */
static int read_floats(PyObject *list, Py_ssize_t count, double *to)
{
    if (!list || !PyList_Check(list) || PyList_Size(list) != count) {
        PyErr_SetString(PyExc_ValueError, "a list of another length is needed");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        to[i] = PyFloat_AsDouble(PyList_GetItem(list, i));
    return !PyErr_Occurred();
}

static PyObject *list_of(const double *numbers, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *number = PyFloat_FromDouble(numbers[i]);
        if (!number || PyList_SetItem(list, i, number) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* Room for so many equations of as many unknowns, and for their solution. */
typedef struct {
    double **rows, *numbers, *unknowns;
} Equations;

static int make_room(Equations *equations, Py_ssize_t size)
{
    equations->rows = malloc((size + 1) * sizeof *equations->rows);
    equations->numbers = malloc((size + 1) * (size + 1) * sizeof(double));
    equations->unknowns = malloc((size + 1) * sizeof(double));
    if (!equations->rows || !equations->numbers || !equations->unknowns) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < size; i++)
        equations->rows[i] = equations->numbers + i * (size + 1);
    return 1;
}

static void leave_room(Equations *equations)
{
    free(equations->rows);
    free(equations->numbers);
    free(equations->unknowns);
}

static PyObject *solution(Equations *equations, Py_ssize_t size)
{
    if (!solved(equations->rows, size, equations->unknowns))
        return Py_NewRef(Py_None);
    return list_of(equations->unknowns, size);
}

/* solve_small(rows) -> list or None */
static PyObject *solve_small(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Equations equations = {0};
    Arguments arguments = {0};
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "."))
        return NULL;
    if (!PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a list of equations is needed");
        return NULL;
    }
    Py_ssize_t size = PyList_Size(args[0]);
    int well = make_room(&equations, size);
    for (Py_ssize_t i = 0; well && i < size; i++)
        well = read_floats(PyList_GetItem(args[0], i), size + 1, equations.rows[i]);
    if (well)
        answer = solution(&equations, size);
    leave_room(&equations);
    return answer;
}

/* balance(held, way, basis, capacity) -> total, solution or None */
static PyObject *balance(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    Equations equations = {0};
    PyObject *answer = NULL, *unknowns = NULL, *used = NULL;
    double *total = NULL, *capacity = NULL;
    if (!take_all(&arguments, args, n_args, "dd.."))
        goto end;
    if (!PyList_Check(args[2]) || !PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "the basis and the capacity are lists");
        goto end;
    }
    const double *held = arrays[0].view.buf, *way = arrays[1].view.buf;
    Py_ssize_t classes = items(&arrays[0]), width = PyList_Size(args[3]);
    if (items(&arrays[1]) != classes * 2 * width || PyList_Size(args[2]) != width) {
        wrong_sizes();
        goto end;
    }
    total = calloc(2 * width + 1, sizeof *total);
    capacity = malloc((width + 1) * sizeof *capacity);
    if (!total || !capacity) {
        PyErr_NoMemory();
        goto end;
    }
    if (!make_room(&equations, width) || !read_floats(args[3], width, capacity))
        goto end;
    for (Py_ssize_t k = 0; k < classes; k++)
        for (Py_ssize_t c = 0; c < 2 * width; c++)
            total[c] += held[k] * way[k * 2 * width + c];
    for (Py_ssize_t j = 0; j < width; j++) {
        double *row = equations.rows[j];
        if (!read_floats(PyList_GetItem(args[2], j), width - 1, row + 1))
            goto end;
        row[0] = total[width + j];
        row[width] = capacity[j] - total[j];
    }
    unknowns = solution(&equations, width);
    used = list_of(total, 2 * width);
    if (unknowns && used)
        answer = PyTuple_Pack(2, used, unknowns);
end:
    Py_XDECREF(unknowns);
    Py_XDECREF(used);
    leave_room(&equations);
    free(total);
    free(capacity);
    return give(answer, &arguments);
}

/* -- the account ---------------------------------------------------------------------------- */

/* forward(job, tables, elapsed_s, new_job, new_received, new_tables): both lists of jobs ascend */
static PyObject *forward(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "idxiDe"))
        goto end;
    double elapsed_s = arguments.numbers[2];
    const int64_t *before = arrays[0].view.buf, *now = arrays[3].view.buf;
    const double *old = arrays[1].view.buf;
    double *new = arrays[5].view.buf;
    Py_ssize_t n_before = items(&arrays[0]), n_now = items(&arrays[3]);
    Py_ssize_t width = n_now ? items(&arrays[4]) / n_now : 0;
    Py_ssize_t size = n_now * width, old_size = items(&arrays[1]) / TABLES;
    if (arrays[4].view.ndim != 2 || (width > 1 && arrays[4].view.strides[1] != 8) ||
        items(&arrays[4]) != size || items(&arrays[5]) != TABLES * size ||
        (n_before && n_now && old_size != n_before * width)) {
        wrong_sizes();
        goto end;
    }
    Py_ssize_t from = 0;
    for (Py_ssize_t i = 0; i < n_now; i++) {
        while (from < n_before && before[from] < now[i])
            from++;
        const double *received = row_of(&arrays[4], i);
        int known = from < n_before && before[from] == now[i];
        for (Py_ssize_t j = 0; j < width; j++) {
            Py_ssize_t to = i * width + j, at = from * width + j;
            double share = 0.0, owed = 0.0, carried = 0.0;
            if (known) {
                share = old[SHARE * old_size + at];
                owed = old[OWED * old_size + at] + share * elapsed_s;
                owed += old[RECEIVED * old_size + at];
                owed -= received[j];
                carried = old[CARRIED * old_size + at];
            }
            new[SHARE * size + to] = share;
            new[OWED * size + to] = owed;
            new[CARRIED * size + to] = carried;
            new[RECEIVED * size + to] = received[j];
        }
    }
    answer = Py_NewRef(Py_None);
end:
    return give(answer, &arguments);
}

/* reallocated(tables, share, carry_s, new_tables) */
static PyObject *reallocated(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "ddxe"))
        goto end;
    double carry_s = arguments.numbers[2];
    const double *old = arrays[0].view.buf, *share = arrays[1].view.buf;
    double *new = arrays[3].view.buf;
    Py_ssize_t size = items(&arrays[1]);
    if (items(&arrays[0]) != TABLES * size || items(&arrays[3]) != TABLES * size) {
        wrong_sizes();
        goto end;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        double debt = old[CARRIED * size + i] + old[OWED * size + i];
        debt = debt > carry_s ? carry_s : debt < -carry_s ? -carry_s : debt;
        new[SHARE * size + i] = share[i];
        new[OWED * size + i] = 0.0;
        new[CARRIED * size + i] = share[i] <= 0.0 ? 0.0 : debt;
        new[RECEIVED * size + i] = old[RECEIVED * size + i];
    }
    answer = Py_NewRef(Py_None);
end:
    return give(answer, &arguments);
}

/* credit(slots, rows, until, counted_at, kind, numbers, first): to each row the time of its slot,
   in the column of its accelerator, the first of which is given */
static PyObject *credit(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "IIxDIex"))
        goto end;
    double until = arguments.numbers[2];
    Py_ssize_t first = (Py_ssize_t)arguments.numbers[6];
    Py_ssize_t count = items(&arrays[0]), slots = items(&arrays[3]);
    if (arrays[5].view.ndim != 2 || items(&arrays[1]) != count || items(&arrays[4]) != slots) {
        wrong_sizes();
        goto end;
    }
    Py_ssize_t rows = arrays[5].view.shape[0], width = arrays[5].view.shape[1];
    double *numbers = arrays[5].view.buf;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t slot = *(const int64_t *)row_of(&arrays[0], i);
        int64_t row = *(const int64_t *)row_of(&arrays[1], i);
        if (slot < 0 || slot >= slots || row < 0 || row >= rows) {
            wrong_sizes();
            goto end;
        }
        int64_t column = first + *(const int64_t *)row_of(&arrays[4], slot);
        if (column < 0 || column >= width) {
            wrong_sizes();
            goto end;
        }
        numbers[row * width + column] += until - *(const double *)row_of(&arrays[3], slot);
    }
    answer = Py_NewRef(Py_None);
end:
    return give(answer, &arguments);
}

/* -- who may run ------------------------------------------------------------------------------ */

/* urgent(tables, rows, round_s, soon, somewhere, on, stay, row, column, weight) -> how many.
   Results are written to the last three, which have room for one entry per row and column. */
static PyObject *urgent(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "dxxdx?Ixjje"))
        goto end;
    Py_ssize_t rows = (Py_ssize_t)arguments.numbers[1];
    double round_s = arguments.numbers[2], somewhere = arguments.numbers[4], stay = arguments.numbers[6];
    int stays = arrays[5].open;
    const double *tables = arrays[0].view.buf, *soon = arrays[3].view.buf;
    int64_t *row = arrays[7].view.buf, *column = arrays[8].view.buf;
    double *weight = arrays[9].view.buf;
    Py_ssize_t size = items(&arrays[9]), width = rows > 0 ? size / rows : 0;
    if (rows < 0 || rows * width != size || items(&arrays[0]) < (CARRIED + 1) * size ||
        items(&arrays[3]) != SOON || (stays && items(&arrays[5]) != rows) ||
        items(&arrays[7]) != size || items(&arrays[8]) != size) {
        wrong_sizes();
        goto end;
    }
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < rows; i++) {
        int entries = 0;
        double together = 0.0;
        Py_ssize_t first = count;
        for (Py_ssize_t j = 0; j < width; j++) {
            double share = tables[SHARE * size + i * width + j];
            if (share == 0.0)
                continue;
            double due = tables[OWED * size + i * width + j] / round_s + share;
            entries++;
            together += due;
            if (!(due > LEAST))
                continue;
            double left = (1.0 - due) / share + (1.0 - 1e-9);
            int rounds = left >= SOON - 1 ? SOON - 1 : left >= 1.0 ? (int)left : 0;
            row[count] = i;
            column[count] = j;
            weight[count] = tables[CARRIED * size + i * width + j] / round_s + due + soon[rounds];
            count++;
        }
        for (Py_ssize_t e = first; e < count; e++) {
            if (entries > 1 && together >= 1.0 - 1e-9)
                weight[e] += somewhere;
            if (stays && *(const int64_t *)row_of(&arrays[5], i) == column[e])
                weight[e] += stay;
        }
    }
    answer = PyLong_FromSsize_t(count);
end:
    return give(answer, &arguments);
}

/* -- who runs --------------------------------------------------------------------------------- */

typedef struct {
    double weight, then;
    int64_t row, column;
} Entry;

/* The row that gains most by moving from one node to another. */
typedef struct {
    double gain; /* minus infinity: nobody can */
    int64_t row; /* NOBODY: a free device is left free no longer */
} Move;

/* A choice under way: Choice and Exchange in one. */
typedef struct {
    Entry *entries; /* by falling weight */
    Py_ssize_t n_entries;
    Py_ssize_t rows, width;
    const int64_t *gang; /* NULL: always one */
    Py_ssize_t gang_width;
    int64_t *chosen, *free;
    /* for exchanges; the node after the last column stands for "not assigned" */
    int64_t *where; /* rows → node; NOBODY for those that stay where they are */
    char *moved, *changed;
    double *worth; /* rows × nodes → weight there, minus infinity where it may not be */
    Move *best;    /* node × node */
} Choice;

static int before(const Entry *a, const Entry *b)
{
    return a->weight > b->weight || (a->weight == b->weight && a->then > b->then);
}

/* Sort by falling weight and what comes then, equal ones in the order they had; `room` is for as
   many. */
static void sort(Entry *entries, Py_ssize_t count, Entry *room)
{
    if (count < 2)
        return;
    Py_ssize_t half = count / 2, a = 0, b = half, to = 0;
    sort(entries, half, room);
    sort(entries + half, count - half, room);
    memcpy(room, entries, half * sizeof(Entry));
    while (a < half)
        entries[to++] = b < count && before(&entries[b], &room[a]) ? entries[b++] : room[a++];
}

static int64_t needs(const Choice *choice, int64_t row, int64_t column)
{
    if (!choice->gang)
        return 1;
    return choice->gang[row * choice->gang_width + (choice->gang_width > 1 ? column : 0)];
}

static int is_fixed(const Choice *choice, int64_t row)
{
    for (Py_ssize_t j = 0; j < choice->gang_width; j++)
        if (choice->gang[row * choice->gang_width + j] > 1)
            return 1;
    return 0;
}

static int any_free(const Choice *choice)
{
    for (Py_ssize_t j = 0; j < choice->width; j++)
        if (choice->free[j])
            return 1;
    return 0;
}

/* Gavel's Algorithm 1; return how many are taken. */
static Py_ssize_t pick(Choice *choice)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t e = 0; e < choice->n_entries; e++) {
        int64_t row = choice->entries[e].row, column = choice->entries[e].column;
        int64_t gang = needs(choice, row, column);
        if (choice->free[column] >= gang && choice->chosen[row] == NONE) {
            choice->chosen[row] = column;
            choice->free[column] -= gang;
            count++;
        }
    }
    return count;
}

/* Return whether exchanges could use the free devices after `taken` entries. */
static int could_use_more(const Choice *choice, Py_ssize_t taken)
{
    if (choice->width == 1 || taken == choice->n_entries || !any_free(choice))
        return 0;
    for (Py_ssize_t e = 0; e < choice->n_entries; e++) {
        int64_t row = choice->entries[e].row;
        if (choice->chosen[row] == NONE && !is_fixed(choice, row))
            return 1;
    }
    return 0;
}

/* Start from the present columns of all rows. */
static int begin(Choice *choice)
{
    Py_ssize_t rows = choice->rows, out = choice->width, nodes = out + 1;
    choice->where = malloc(rows * sizeof *choice->where);
    choice->moved = calloc(rows, 1);
    choice->changed = malloc(nodes);
    choice->worth = malloc(rows * nodes * sizeof *choice->worth);
    choice->best = malloc(nodes * nodes * sizeof *choice->best);
    if (!choice->where || !choice->moved || !choice->changed || !choice->worth || !choice->best)
        return 0;
    memset(choice->changed, 1, nodes);
    for (Py_ssize_t i = 0; i < rows; i++) {
        int64_t chosen = choice->chosen[i];
        choice->where[i] = chosen == BUSY || is_fixed(choice, i) ? NOBODY
                           : chosen == NONE                      ? out
                                                                 : chosen;
        for (Py_ssize_t j = 0; j < nodes; j++)
            choice->worth[i * nodes + j] = j == out ? 0.0 : -INFINITY;
    }
    for (Py_ssize_t e = 0; e < choice->n_entries; e++) {
        const Entry *entry = &choice->entries[e];
        choice->worth[entry->row * nodes + entry->column] = entry->weight;
    }
    return 1;
}

/* Find who gains most by moving away from the nodes that have changed. Of those who gain the
   same the last is taken, but of those who wait the first. */
static void look(Choice *choice)
{
    Py_ssize_t out = choice->width, nodes = out + 1;
    for (Py_ssize_t arc = 0; arc < nodes * nodes; arc++)
        if (choice->changed[arc / nodes])
            choice->best[arc] = (Move){-INFINITY, NOBODY};
    for (Py_ssize_t i = 0; i < choice->rows; i++) {
        int64_t a = choice->where[i];
        if (a == NOBODY || !choice->changed[a])
            continue;
        const double *worth = &choice->worth[i * nodes];
        for (Py_ssize_t b = 0; b < nodes; b++) {
            Move *best = &choice->best[a * nodes + b];
            double gain = worth[b] - worth[a];
            if (b != a && (gain > best->gain || (gain == best->gain && a != out)))
                *best = (Move){gain, i};
        }
    }
    for (Py_ssize_t a = 0; a < out; a++)
        if (choice->changed[a] && choice->free[a])
            choice->best[a * nodes + out] = (Move){0.0, NOBODY};
    memset(choice->changed, 0, nodes);
}

static void move(Choice *choice, int64_t a, int64_t b, int64_t row)
{
    choice->changed[a] = choice->changed[b] = 1;
    if (row == NOBODY) {
        choice->free[a]--;
        return;
    }
    choice->where[row] = b;
    choice->moved[row] = 1;
}

/* Move rows round a circle that gains, found by Bellman and Ford's algorithm, if there is one.
   `path` has room for four numbers a node, `best` for one. */
static int go_round(Choice *choice, int64_t *path, double *best)
{
    Py_ssize_t nodes = choice->width + 1, last = -1, length = 0;
    int64_t *came_from = path, *from = path + nodes, *to = from + nodes, *movers = to + nodes;
    look(choice);
    for (Py_ssize_t a = 0; a < nodes; a++) {
        best[a] = 0.0;
        came_from[a] = -1;
    }
    for (Py_ssize_t turn = 0; turn < nodes; turn++) {
        last = -1;
        for (Py_ssize_t a = 0; a < nodes; a++)
            for (Py_ssize_t b = 0; b < nodes; b++) {
                double more = choice->best[a * nodes + b].gain;
                if (more > -INFINITY && best[a] + more > best[b] + LEAST) {
                    best[b] = best[a] + more;
                    came_from[b] = a;
                    last = b;
                }
            }
        if (last < 0)
            return 0;
    }
    for (Py_ssize_t turn = 0; turn < nodes; turn++) /* to stand on the circle itself */
        last = came_from[last];
    for (int64_t at = last; !length || at != last; at = came_from[at]) {
        int64_t before = came_from[at];
        from[length] = before;
        to[length] = at;
        movers[length++] = choice->best[before * nodes + at].row;
    }
    for (Py_ssize_t step = 0; step < length; step++)
        move(choice, from[step], to[step], movers[step]);
    return 1;
}

/* Exchange rows while a column has room and that adds weight. */
static int exchange(Choice *choice)
{
    Py_ssize_t nodes = choice->width + 1;
    int64_t *path = malloc(4 * nodes * sizeof *path);
    double *best = malloc(nodes * sizeof *best);
    int well = path && best && begin(choice);
    for (int turn = 0; well && turn < MAX_EXCHANGES && any_free(choice); turn++)
        if (!go_round(choice, path, best))
            break;
    for (Py_ssize_t i = 0; well && i < choice->rows; i++)
        if (choice->moved[i])
            choice->chosen[i] = choice->where[i] == choice->width ? NONE : choice->where[i];
    free(path);
    free(best);
    return well;
}

static int64_t *numbers_of(PyObject *list, Py_ssize_t count)
{
    int64_t *numbers = malloc((count + 1) * sizeof *numbers);
    if (!numbers) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        numbers[i] = PyLong_AsLongLong(PyList_GetItem(list, i));
    if (PyErr_Occurred()) {
        free(numbers);
        return NULL;
    }
    return numbers;
}

static int write_back(PyObject *list, const int64_t *numbers, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyList_SetItem(list, i, number) < 0)
            return 0;
    }
    return 1;
}

/* Put the entries that can be used into the choice, by falling weight. */
static int take_in(Choice *choice, const Array *row, const Array *column, const Array *weight)
{
    Py_ssize_t count = items(row);
    int busy = 0;
    for (Py_ssize_t i = 0; i < choice->rows; i++)
        busy |= choice->chosen[i] == BUSY;
    choice->entries = malloc((2 * count + 1) * sizeof(Entry));
    if (!choice->entries) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t e = 0; e < count; e++) {
        int64_t i = *(const int64_t *)row_of(row, e), j = *(const int64_t *)row_of(column, e);
        if (i < 0 || i >= choice->rows || j < 0 || j >= choice->width)
            return wrong_sizes();
        if (busy && (choice->chosen[i] != NONE || choice->free[j] <= 0))
            continue;
        double its_weight = *(const double *)row_of(weight, e);
        choice->entries[choice->n_entries++] = (Entry){its_weight, 0.0, i, j};
    }
    sort(choice->entries, choice->n_entries, choice->entries + count);
    return 1;
}

/* Begin a choice from gangs, a list of what is free, and what is chosen; 0 with an error set. */
static int open_choice(Choice *choice, const Array *gang, PyObject *free, const Array *chosen)
{
    if (!PyList_Check(free)) {
        PyErr_SetString(PyExc_TypeError, "what is free is a list");
        return 0;
    }
    choice->width = PyList_Size(free);
    choice->rows = items(chosen);
    choice->chosen = chosen->view.buf;
    if (gang->open) {
        choice->gang = gang->view.buf;
        choice->gang_width = gang->view.ndim == 1 ? 1 : gang->view.shape[1];
        if (items(gang) != choice->rows * choice->gang_width ||
            (choice->gang_width != 1 && choice->gang_width != choice->width))
            return wrong_sizes();
    }
    if (!(choice->free = numbers_of(free, choice->width)))
        return 0;
    for (Py_ssize_t i = 0; i < choice->rows; i++)
        if (choice->chosen[i] >= choice->width)
            return wrong_sizes();
    return 1;
}

static void close_choice(Choice *choice)
{
    free(choice->entries);
    free(choice->free);
    free(choice->where);
    free(choice->moved);
    free(choice->changed);
    free(choice->worth);
    free(choice->best);
}

/* assign(row, column, weight, gang, free, chosen): the last two change */
static PyObject *assign(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    Choice choice = {0};
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "IID?i.j") ||
        !open_choice(&choice, &arrays[3], args[4], &arrays[5]))
        goto end;
    if (items(&arrays[1]) != items(&arrays[0]) || items(&arrays[2]) != items(&arrays[0])) {
        wrong_sizes();
        goto end;
    }
    if (!take_in(&choice, &arrays[0], &arrays[1], &arrays[2]))
        goto end;
    if (could_use_more(&choice, pick(&choice)) && !exchange(&choice)) {
        PyErr_NoMemory();
        goto end;
    }
    if (write_back(args[4], choice.free, choice.width))
        answer = Py_NewRef(Py_None);
end:
    close_choice(&choice);
    return give(answer, &arguments);
}

/* fill(speed, owed, gang, free, chosen): the last two change */
static PyObject *fill(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    Choice choice = {0};
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "dd?i.j") ||
        !open_choice(&choice, &arrays[2], args[3], &arrays[4]))
        goto end;
    const double *speeds = arrays[0].view.buf, *owed = arrays[1].view.buf;
    Py_ssize_t width = choice.width, size = choice.rows * width;
    if (items(&arrays[0]) != size || items(&arrays[1]) != size) {
        wrong_sizes();
        goto end;
    }
    choice.entries = malloc((2 * size + 1) * sizeof(Entry));
    if (!choice.entries) {
        PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t i = 0; i < choice.rows; i++) {
        const double *speed = speeds + i * width;
        double most = 0.0;
        if (choice.chosen[i] != NONE)
            continue;
        for (Py_ssize_t j = 0; j < width; j++)
            most = speed[j] > most ? speed[j] : most;
        for (Py_ssize_t j = 0; j < width; j++)
            if (speed[j] > 0.0 && choice.free[j] > 0)
                choice.entries[choice.n_entries++] =
                    (Entry){owed[i * width + j], speed[j] / most, i, j};
    }
    sort(choice.entries, choice.n_entries, choice.entries + size);
    pick(&choice);
    if (write_back(args[3], choice.free, choice.width))
        answer = Py_NewRef(Py_None);
end:
    close_choice(&choice);
    return give(answer, &arguments);
}

/* Devices on offer, and the price of one in each cell by the number that are left. */
typedef struct {
    Py_ssize_t cells, accelerators, columns;
    const int64_t *range;
    const double *prices;
} Market;

/* One way to have decided on the first jobs of the queue. */
typedef struct {
    double payoff;
    uint64_t key;
    Py_ssize_t trail;
    int64_t *left;
    double *least;
    int64_t *cheapest;
} Way;

/* A way after one more job: admitted to an accelerator, or passed over. */
typedef struct {
    double payoff;
    const Way *before;
    int64_t accelerator;
} Step;

/* A job admitted, and the one before it. */
typedef struct {
    Py_ssize_t before, place;
    int64_t cell;
    double cost;
} Admitted;

static uint64_t unit_of(int64_t cell)
{
    uint64_t mixed = ((uint64_t)cell + 1) * 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    return mixed ^ (mixed >> 27);
}

static void find_cheapest(const Market *market, Way *way, int64_t accelerator)
{
    int64_t first = market->range[2 * accelerator], last = market->range[2 * accelerator + 1];
    double least = INFINITY;
    int64_t cheapest = first;
    for (int64_t cell = first; cell < last; cell++) {
        double price = market->prices[cell * market->columns + way->left[cell]];
        if (price < least) {
            least = price;
            cheapest = cell;
        }
    }
    way->least[accelerator] = least;
    way->cheapest[accelerator] = cheapest;
}

/* Copy a way, less the cheapest device of an accelerator unless that is NONE. */
static void follow(const Market *market, const Step *step, Way *way)
{
    const Way *before = step->before;
    memcpy(way->left, before->left, market->cells * sizeof *way->left);
    memcpy(way->least, before->least, market->accelerators * sizeof *way->least);
    memcpy(way->cheapest, before->cheapest, market->accelerators * sizeof *way->cheapest);
    way->payoff = step->payoff;
    way->key = before->key;
    way->trail = before->trail;
    if (step->accelerator == NONE)
        return;
    int64_t cell = before->cheapest[step->accelerator];
    way->left[cell]--;
    way->key -= unit_of(cell);
}

/* List the ways after one more job, the greatest payoff first; those that pass it over lead ties. */
static Py_ssize_t list_steps(
    const Market *market, const double *worth, const Way *front, Py_ssize_t ways, Step *steps,
    Step *admitted)
{
    Py_ssize_t n_admitted = 0, count = 0, a = 0;
    for (Py_ssize_t w = 0; w < ways; w++) {
        double best = 0.0;
        int64_t choice = NONE;
        for (Py_ssize_t k = 0; k < market->accelerators; k++)
            if (worth[k] > 0.0 && worth[k] - front[w].least[k] > best) {
                best = worth[k] - front[w].least[k];
                choice = k;
            }
        if (choice == NONE)
            continue;
        Step step = {front[w].payoff + best, &front[w], choice};
        Py_ssize_t at = n_admitted++;
        for (; at > 0 && admitted[at - 1].payoff < step.payoff; at--)
            admitted[at] = admitted[at - 1];
        admitted[at] = step;
    }
    if (!n_admitted)
        return 0;
    for (Py_ssize_t w = 0; w < ways; w++) {
        while (a < n_admitted && admitted[a].payoff > front[w].payoff)
            steps[count++] = admitted[a++];
        steps[count++] = (Step){front[w].payoff, &front[w], NONE};
    }
    while (a < n_admitted)
        steps[count++] = admitted[a++];
    return count;
}

static int is_known(const Market *market, const Way *ways, Py_ssize_t count, const Way *way)
{
    for (Py_ssize_t w = 0; w < count; w++)
        if (ways[w].key == way->key &&
            !memcmp(ways[w].left, way->left, market->cells * sizeof *way->left))
            return 1;
    return 0;
}

/* Room for twice as many ways as are followed: those before and those after a job. */
static Way *room_for_ways(const Market *market, Py_ssize_t count)
{
    size_t each = (market->cells + 2 * market->accelerators) * sizeof(int64_t);
    char *room = malloc(count * (sizeof(Way) + each));
    Way *ways = (Way *)room;
    for (Py_ssize_t w = 0; room && w < count; w++) {
        char *own = room + count * sizeof(Way) + w * each;
        ways[w].left = (int64_t *)own;
        ways[w].cheapest = ways[w].left + market->cells;
        ways[w].least = (double *)(ways[w].cheapest + market->accelerators);
    }
    return ways;
}

/* Decide on the whole queue; 0 without memory. */
static int sell_queue(
    const Market *market, const double *worth, Py_ssize_t jobs, const int64_t *left,
    Py_ssize_t width, int64_t *sold, double *cost)
{
    Way *room = room_for_ways(market, 2 * width), *front = room, *next = room + width;
    Step *steps = malloc(3 * width * sizeof *steps);
    Admitted *trail = malloc((jobs * width + 1) * sizeof *trail);
    Py_ssize_t ways = 1, n_trail = 0;
    int well = room && steps && trail;
    if (!well)
        goto end;
    memcpy(front->left, left, market->cells * sizeof *left);
    front->payoff = 0.0;
    front->key = 0;
    front->trail = NONE;
    for (Py_ssize_t k = 0; k < market->accelerators; k++)
        find_cheapest(market, front, k);
    for (Py_ssize_t place = 0; place < jobs; place++) {
        const double *its_worth = worth + place * market->accelerators;
        Py_ssize_t count = list_steps(market, its_worth, front, ways, steps, steps + 2 * width);
        if (!count)
            continue;
        Py_ssize_t kept = 0;
        for (Py_ssize_t s = 0; s < count && kept < width; s++) {
            Way *way = &next[kept];
            follow(market, &steps[s], way);
            if (is_known(market, next, kept, way))
                continue;
            kept++;
            if (steps[s].accelerator == NONE)
                continue;
            int64_t k = steps[s].accelerator;
            const Way *before = steps[s].before;
            trail[n_trail] = (Admitted){before->trail, place, before->cheapest[k], before->least[k]};
            way->trail = n_trail++;
            find_cheapest(market, way, k);
        }
        Way *last = front;
        front = next;
        next = last;
        ways = kept;
    }
    for (Py_ssize_t at = front->trail; at != NONE; at = trail[at].before) {
        sold[trail[at].place] = trail[at].cell;
        cost[trail[at].place] = trail[at].cost;
    }
end:
    free(room);
    free(steps);
    free(trail);
    return well;
}

/* sell_singles(worth, range, prices, left, width, sold, cost): the last two are filled */
static PyObject *sell_singles(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "didixje"))
        goto end;
    const int64_t *range = arrays[1].view.buf, *left = arrays[3].view.buf;
    Py_ssize_t cells = items(&arrays[3]), accelerators = items(&arrays[1]) / 2;
    double wanted = arguments.numbers[4];
    Py_ssize_t jobs = items(&arrays[5]), width = wanted < MAX_WAYS ? (Py_ssize_t)wanted : 0;
    Market market = {cells, accelerators, cells ? items(&arrays[2]) / cells : 0, range,
                     arrays[2].view.buf};
    int fits = width >= 1 && items(&arrays[0]) == jobs * accelerators &&
               items(&arrays[6]) == jobs && items(&arrays[2]) == cells * market.columns;
    for (Py_ssize_t k = 0; fits && k < accelerators; k++)
        fits = range[2 * k] >= 0 && range[2 * k] <= range[2 * k + 1] && range[2 * k + 1] <= cells;
    for (Py_ssize_t cell = 0; fits && cell < cells; cell++)
        fits = left[cell] >= 0 && left[cell] < market.columns &&
               market.prices[cell * market.columns] == INFINITY;
    if (!fits) {
        wrong_sizes();
        goto end;
    }
    int64_t *sold = arrays[5].view.buf;
    for (Py_ssize_t i = 0; i < jobs; i++)
        sold[i] = NONE;
    if (sell_queue(&market, arrays[0].view.buf, jobs, left, width, sold, arrays[6].view.buf))
        answer = Py_NewRef(Py_None);
    else
        PyErr_NoMemory();
end:
    return give(answer, &arguments);
}

/* -- options ---------------------------------------------------------------------------------- */

/* The options of a problem: arrays as long as there are options. */
typedef struct {
    Py_ssize_t count;
    const double *size, *gain, *uses, *gain_second;
    const int64_t *resource, *first, *other;
} Options;

/* Take uses (size, gain, uses and second gain) and places (resource, first and other class);
   0 with an error set if they do not fit, or name a resource or class that there is not. */
static int take_options(
    Options *options, const Array *use, const Array *place, Py_ssize_t resources,
    Py_ssize_t classes)
{
    Py_ssize_t count = options->count = items(place) / 3;
    if (items(place) != 3 * count || items(use) != 4 * count)
        return wrong_sizes();
    options->size = use->view.buf;
    options->gain = options->size + count;
    options->uses = options->gain + count;
    options->gain_second = options->uses + count;
    options->resource = place->view.buf;
    options->first = options->resource + count;
    options->other = options->first + count;
    uint64_t width = resources, most = classes;
    for (Py_ssize_t o = 0; o < count; o++)
        if ((uint64_t)options->resource[o] >= width || (uint64_t)options->first[o] >= most ||
            (uint64_t)options->other[o] > most)
            return wrong_sizes();
    return 1;
}

/* price_options(use, place, price, level, time, worth): the last one is filled; the prices of levels
   and times end with a 0 for members that there are not */
static PyObject *price_options(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "diddde"))
        goto end;
    Options options;
    Py_ssize_t classes = items(&arrays[3]) - 1;
    if (!take_options(&options, &arrays[0], &arrays[1], items(&arrays[2]), classes))
        goto end;
    if (items(&arrays[4]) != classes + 1 || items(&arrays[5]) != options.count) {
        wrong_sizes();
        goto end;
    }
    const double *price = arrays[2].view.buf, *level = arrays[3].view.buf;
    const double *time = arrays[4].view.buf;
    double *worth = arrays[5].view.buf;
    for (Py_ssize_t o = 0; o < options.count; o++) {
        int64_t first = options.first[o], other = options.other[o];
        double sum = options.size[o] * price[options.resource[o]];
        sum += options.gain[o] * level[first];
        sum += options.uses[o] * time[first];
        sum += options.gain_second[o] * level[other];
        worth[o] = sum + time[other];
    }
    answer = Py_NewRef(Py_None);
end:
    return give(answer, &arguments);
}

/* cheapest_gains(use, place, cost, least): the last one, begun with infinities, is lowered */
static PyObject *cheapest_gains(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "dide"))
        goto end;
    Options options;
    Py_ssize_t classes = items(&arrays[3]);
    if (!take_options(&options, &arrays[0], &arrays[1], PY_SSIZE_T_MAX, classes))
        goto end;
    if (items(&arrays[2]) != options.count) {
        wrong_sizes();
        goto end;
    }
    const double *cost = arrays[2].view.buf;
    double *least = arrays[3].view.buf;
    for (Py_ssize_t o = 0; o < options.count; o++) {
        int64_t first = options.first[o], other = options.other[o];
        if (options.gain[o] > 0.0 && cost[o] / options.gain[o] < least[first])
            least[first] = cost[o] / options.gain[o];
        if (other < classes && options.gain_second[o] > 0.0 &&
            cost[o] / options.gain_second[o] < least[other])
            least[other] = cost[o] / options.gain_second[o];
    }
    answer = Py_NewRef(Py_None);
end:
    return give(answer, &arguments);
}

/* -- lottery ---------------------------------------------------------------------------------- */

/* One quantum's draws. */
typedef struct {
    Py_ssize_t rows, width;
    const int64_t *gang, *preferred, *smallest, *usable;
    const double *time, *odds;
    int64_t *room, *free, *first, *wanted;
    char *waits;
    uint64_t start;
    int64_t draws;
} Drawing;

static uint64_t mixed(uint64_t value)
{
    value += UINT64_C(0x9E3779B97F4A7C15);
    value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return value ^ (value >> 31);
}

static double uniform(Drawing *drawing)
{
    drawing->draws++;
    return (double)mixed(drawing->start ^ (uint64_t)drawing->draws) / 18446744073709551616.0;
}

/* The accelerator that a row would get, or NONE. */
static int64_t place_of(const Drawing *drawing, int64_t row)
{
    const int64_t *gang = drawing->gang + row * drawing->width;
    const int64_t *preferred = drawing->preferred + row * drawing->width;
    for (Py_ssize_t i = 0; i < drawing->width && preferred[i] >= 0; i++)
        if (drawing->free[preferred[i]] >= gang[preferred[i]])
            return preferred[i];
    return NONE;
}

static int run_row(Drawing *drawing, int64_t row)
{
    int64_t k = drawing->waits[row] ? place_of(drawing, row) : NONE;
    if (k == NONE)
        return 0;
    drawing->waits[row] = 0;
    drawing->free[k] -= drawing->gang[row * drawing->width + k];
    drawing->wanted[row] = k;
    return 1;
}

static int devices_left(const Drawing *drawing)
{
    for (Py_ssize_t k = 0; k < drawing->width; k++)
        if (drawing->free[k])
            return 1;
    return 0;
}

static int any_fits(Drawing *drawing)
{
    if (!devices_left(drawing))
        return 0;
    for (Py_ssize_t k = 0; k < drawing->width; k++) {
        const int64_t *smallest = drawing->smallest + k * drawing->rows;
        int64_t place = drawing->first[k];
        while (place < drawing->rows && smallest[place] >= 0 && !drawing->waits[smallest[place]])
            place++;
        drawing->first[k] = place;
        if (place < drawing->rows && smallest[place] >= 0 &&
            drawing->gang[smallest[place] * drawing->width + k] <= drawing->free[k])
            return 1;
    }
    return 0;
}

static void open_quantum(Drawing *drawing, const int64_t *capacity)
{
    memcpy(drawing->free, capacity, drawing->width * sizeof *capacity);
    memset(drawing->waits, 1, drawing->rows);
    for (Py_ssize_t row = 0; row < drawing->rows; row++)
        drawing->wanted[row] = NONE;
}

/* The row whose ticket is drawn. */
static int64_t drawn(Drawing *drawing)
{
    Py_ssize_t low = 0, high = drawing->rows;
    double ticket = uniform(drawing) * drawing->odds[drawing->rows - 1];
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (ticket < drawing->odds[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low < drawing->rows ? low : drawing->rows - 1;
}

/* The same among the rows that fit, of which there is one. */
static int64_t drawn_among_fitting(Drawing *drawing)
{
    double total = 0.0, so_far = 0.0;
    int first = 1;
    for (Py_ssize_t row = 0; row < drawing->rows; row++)
        if (drawing->waits[row] && place_of(drawing, row) != NONE) {
            total = first ? drawing->time[row] : total + drawing->time[row];
            first = 0;
        }
    double ticket = uniform(drawing) * total;
    int64_t last = NONE;
    first = 1;
    for (Py_ssize_t row = 0; row < drawing->rows; row++)
        if (drawing->waits[row] && place_of(drawing, row) != NONE) {
            so_far = first ? drawing->time[row] : so_far + drawing->time[row];
            first = 0;
            last = row;
            if (ticket < so_far)
                break;
        }
    return last;
}

/* Honour the wins in the queue, then draw; return the number of wins that wait. */
static Py_ssize_t draw_quantum(Drawing *drawing, const int64_t *capacity, const Array *always,
                               const Array *queue, int64_t *wins)
{
    const int64_t *each = always->view.buf, *queued = queue->view.buf;
    open_quantum(drawing, capacity);
    for (Py_ssize_t i = 0; i < items(always); i++)
        if (!run_row(drawing, each[i])) {
            open_quantum(drawing, capacity);
            break;
        }
    Py_ssize_t count = 0, place = 0, n_queue = items(queue);
    for (; place < n_queue; place++)
        if (drawing->waits[queued[place]])
            wins[count++] = queued[place];
    n_queue = count;
    int open = 1;
    for (place = count = 0; place < n_queue; place++) {
        if (open && run_row(drawing, wins[place]))
            open = devices_left(drawing);
        else
            wins[count++] = wins[place];
    }
    for (place = 0; place < count; place++)
        drawing->room[drawing->usable[wins[place]]]--;
    int blanks = 0, fits = any_fits(drawing);
    while (fits) {
        int64_t row = blanks < MAX_VOID_DRAWS ? drawn(drawing) : drawn_among_fitting(drawing);
        if (row == NONE)
            break;
        int64_t *room = &drawing->room[drawing->usable[row]];
        if (run_row(drawing, row)) {
            blanks = 0;
            fits = any_fits(drawing);
        } else if (*room > 0) {
            --*room;
            wins[count++] = row;
        } else {
            blanks++;
        }
    }
    return count;
}

static int all_below(const Array *array, int64_t least, int64_t limit)
{
    const int64_t *numbers = array->view.buf;
    for (Py_ssize_t i = 0; i < items(array); i++)
        if (numbers[i] < least || numbers[i] >= limit)
            return 0;
    return 1;
}

/* draw_lottery(gang, preferred, smallest, usable, room, time, odds, always, capacity, queue, state,
   wanted, wins): the last three are filled */
static PyObject *draw_lottery(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    char *waits = NULL;
    int64_t *numbers = NULL;
    if (!take_all(&arguments, args, n_args, "iiiiiddiiijjj"))
        goto end;
    Py_ssize_t rows = items(&arrays[3]), width = items(&arrays[8]), sets = items(&arrays[4]);
    int64_t *state = arrays[10].view.buf, wins = items(&arrays[9]);
    int fits = items(&arrays[0]) == rows * width && items(&arrays[1]) == rows * width &&
               items(&arrays[2]) == rows * width && items(&arrays[5]) == rows &&
               items(&arrays[6]) == rows && items(&arrays[10]) == 3 && items(&arrays[11]) == rows &&
               all_below(&arrays[1], NONE, width) && all_below(&arrays[2], NONE, rows) &&
               all_below(&arrays[3], 0, sets) && all_below(&arrays[7], 0, rows) &&
               all_below(&arrays[9], 0, rows);
    const int64_t *room = arrays[4].view.buf;
    for (Py_ssize_t set = 0; fits && set < sets; set++) {
        fits = room[set] >= 0 && room[set] < MAX_WAYS;
        wins += room[set];
    }
    if (!fits || items(&arrays[12]) < wins) {
        wrong_sizes();
        goto end;
    }
    waits = malloc(rows + 1);
    numbers = calloc(sets + 2 * width + 1, sizeof *numbers);
    if (!waits || !numbers) {
        PyErr_NoMemory();
        goto end;
    }
    memcpy(numbers, room, sets * sizeof *numbers);
    Drawing drawing = {
        rows, width, arrays[0].view.buf, arrays[1].view.buf, arrays[2].view.buf,
        arrays[3].view.buf, arrays[5].view.buf, arrays[6].view.buf, numbers, numbers + sets,
        numbers + sets + width, arrays[11].view.buf, waits, (uint64_t)state[1], state[0],
    };
    state[2] = draw_quantum(&drawing, arrays[8].view.buf, &arrays[7], &arrays[9],
                            arrays[12].view.buf);
    state[0] = drawing.draws;
    answer = Py_NewRef(Py_None);
end:
    free(waits);
    free(numbers);
    return give(answer, &arguments);
}

/* -- single devices of greatest value --------------------------------------------------------- */

/* Rows in bins, one for each column; the last one holds the rows without a device. */
typedef struct {
    Py_ssize_t rows, width;
    const double *value;
    int64_t *bin;
    double *gain;   /* bins × bins: the greatest by moving one row from the first to the second */
    int64_t *mover; /* bins × bins: that row */
} Matching;

static double worth_in(const Matching *matching, Py_ssize_t row, Py_ssize_t bin)
{
    return bin == matching->width ? 0.0 : matching->value[row * matching->width + bin];
}

static void list_moves(Matching *matching, Py_ssize_t from)
{
    Py_ssize_t bins = matching->width + 1;
    double *gain = matching->gain + from * bins;
    int64_t *mover = matching->mover + from * bins;
    for (Py_ssize_t to = 0; to < bins; to++) {
        gain[to] = -INFINITY;
        mover[to] = NONE;
    }
    for (Py_ssize_t row = 0; row < matching->rows; row++) {
        if (matching->bin[row] != from)
            continue;
        double now = worth_in(matching, row, from);
        for (Py_ssize_t to = 0; to < bins; to++) {
            double then = worth_in(matching, row, to);
            if (to != from && (to == matching->width || then > 0.0) && then - now > gain[to]) {
                gain[to] = then - now;
                mover[to] = row;
            }
        }
    }
}

/* Serve one more row where that gains most, others making room; 0: none gains, -1: no answer. */
static int serve_one_more(Matching *matching, int64_t *left, double *reach, int64_t *via)
{
    Py_ssize_t width = matching->width, bins = width + 1;
    for (Py_ssize_t to = 0; to < width; to++) {
        reach[to] = matching->gain[width * bins + to];
        via[to] = width;
    }
    for (Py_ssize_t length = 1; length < width; length++)
        for (Py_ssize_t from = 0; from < width; from++)
            for (Py_ssize_t to = 0; to < width; to++) {
                double gain = reach[from] + matching->gain[from * bins + to];
                if (gain > reach[to]) {
                    reach[to] = gain;
                    via[to] = from;
                }
            }
    Py_ssize_t end = NONE, steps = 0;
    for (Py_ssize_t to = 0; to < width; to++)
        if (left[to] > 0 && reach[to] > 0.0 && (end == NONE || reach[to] > reach[end]))
            end = to;
    if (end == NONE)
        return 0;
    for (Py_ssize_t to = end; to != width; to = via[to])
        if (++steps > width)
            return -1;
    left[end]--;
    for (Py_ssize_t to = end; to != width; to = via[to])
        matching->bin[matching->mover[via[to] * bins + to]] = to;
    for (Py_ssize_t to = end; to != width; to = via[to])
        list_moves(matching, to);
    list_moves(matching, width);
    return 1;
}

/* Whether every other choice is worth less by the margin: each is a cycle of moves, or a chain of
   moves that ends where a device is left. */
static int is_only_optimum(Matching *matching, const int64_t *left, double margin)
{
    Py_ssize_t bins = matching->width + 1;
    double *gain = matching->gain;
    for (Py_ssize_t over = 0; over < bins; over++)
        for (Py_ssize_t from = 0; from < bins; from++)
            for (Py_ssize_t to = 0; to < bins; to++) {
                double both = gain[from * bins + over] + gain[over * bins + to];
                if (both > gain[from * bins + to])
                    gain[from * bins + to] = both;
            }
    for (Py_ssize_t from = 0; from < bins; from++)
        for (Py_ssize_t to = 0; to < bins; to++)
            if ((to == from || to == matching->width || left[to] > 0) &&
                !(gain[from * bins + to] < -margin))
                return 0;
    return 1;
}

/* match_singles(value, capacity, margin, chosen): the last is filled; whether it is the only one */
static PyObject *match_singles(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    double *gains = NULL;
    int64_t *numbers = NULL;
    if (!take_all(&arguments, args, n_args, "dixj"))
        goto end;
    Py_ssize_t rows = items(&arrays[3]), width = items(&arrays[1]), bins = width + 1;
    if (items(&arrays[0]) != rows * width) {
        wrong_sizes();
        goto end;
    }
    gains = malloc((bins * bins + bins) * sizeof *gains);
    numbers = malloc((bins * bins + 2 * bins) * sizeof *numbers);
    if (!gains || !numbers) {
        PyErr_NoMemory();
        goto end;
    }
    Matching matching = {rows, width, arrays[0].view.buf, arrays[3].view.buf, gains, numbers};
    int64_t *left = numbers + bins * bins;
    memcpy(left, arrays[1].view.buf, width * sizeof *left);
    for (Py_ssize_t row = 0; row < rows; row++)
        matching.bin[row] = width;
    for (Py_ssize_t from = 0; from < bins; from++)
        list_moves(&matching, from);
    int more = 1;
    while (more > 0)
        more = serve_one_more(&matching, left, gains + bins * bins, left + bins);
    for (Py_ssize_t row = 0; row < rows; row++)
        if (matching.bin[row] == width)
            matching.bin[row] = NONE;
    answer = PyBool_FromLong(!more && is_only_optimum(&matching, left, arguments.numbers[2]));
end:
    free(gains);
    free(numbers);
    return give(answer, &arguments);
}

/* -- stages of a climb ------------------------------------------------------------------------ */

/* The pairs of a stage's classes. */
typedef struct {
    Py_ssize_t classes, columns;
    const double *table, *level, *prices, *tie_prices;
    double *top, *bottom;
    int64_t *first, *second;
    const int64_t *basic;
} Pairs;

/* Take the table (gains and the tie rule's costs of each class), the pairs' gains, the pairs and
   what is basic, levels, prices and the tie rule's prices; 0 with an error set if they do not fit. */
static int take_pairs(Pairs *pairs, const Array *arrays)
{
    Py_ssize_t classes = pairs->classes = items(&arrays[3]);
    Py_ssize_t columns = pairs->columns = items(&arrays[4]);
    if (columns < 1 || columns > MAX_COLUMNS || items(&arrays[0]) != 2 * classes * columns ||
        items(&arrays[1]) != 2 * classes || items(&arrays[2]) != 3 * classes ||
        items(&arrays[5]) != columns)
        return wrong_sizes();
    pairs->table = arrays[0].view.buf;
    pairs->top = arrays[1].view.buf;
    pairs->bottom = pairs->top + classes;
    pairs->first = arrays[2].view.buf;
    pairs->second = pairs->first + classes;
    pairs->basic = pairs->second + classes;
    pairs->level = arrays[3].view.buf;
    pairs->prices = arrays[4].view.buf;
    pairs->tie_prices = arrays[5].view.buf;
    for (Py_ssize_t k = 0; k < 2 * classes; k++)
        if (pairs->first[k] < 0 || pairs->first[k] >= columns)
            return wrong_sizes();
    return 1;
}

static const double *gains_of(const Pairs *pairs, Py_ssize_t k)
{
    return pairs->table + 2 * k * pairs->columns;
}

static double cap_of(const Pairs *pairs, Py_ssize_t k)
{
    const double *gain = gains_of(pairs, k);
    double cap = 0.0;
    for (Py_ssize_t c = 0; c < pairs->columns; c++)
        if (gain[c] > cap)
            cap = gain[c];
    return cap;
}

/* ClassPairs.choose for one class. */
static void choose_pair(Pairs *pairs, Py_ssize_t k)
{
    Py_ssize_t columns = pairs->columns, chosen = 0, near = 0;
    const double *gain = gains_of(pairs, k), *tie_cost = gain + columns, *prices = pairs->prices;
    double part[MAX_COLUMNS * MAX_COLUMNS], cost[MAX_COLUMNS * MAX_COLUMNS];
    double cap = cap_of(pairs, k), at = pairs->level[k], least = INFINITY;
    if (at < cap * ABOVE_NOTHING)
        at = cap * ABOVE_NOTHING;
    if (at > cap * (1 - BELOW_CAP))
        at = cap * (1 - BELOW_CAP);
    for (Py_ssize_t a = 0; a < columns; a++)
        for (Py_ssize_t b = 0; b < columns; b++) {
            Py_ssize_t i = a * columns + b;
            int spans = gain[a] > at && (gain[a] > 0.0 || a == columns - 1) && gain[b] <= at &&
                        (gain[b] > 0.0 || b == columns - 1);
            part[i] = (at - gain[b]) / (spans ? gain[a] - gain[b] : 1.0);
            cost[i] = spans ? prices[b] + part[i] * (prices[a] - prices[b]) : INFINITY;
            if (cost[i] < least)
                least = cost[i];
        }
    for (Py_ssize_t i = columns * columns - 1; i >= 0; i--)
        if (cost[i] <= least + TIED) {
            chosen = i;
            near++;
        }
    if (near > 1) {
        double best = INFINITY;
        for (Py_ssize_t i = 0; i < columns * columns; i++)
            if (cost[i] <= least + TIED) {
                Py_ssize_t a = i / columns, b = i % columns;
                double upper = pairs->tie_prices[a] + tie_cost[a];
                double lower = pairs->tie_prices[b] + tie_cost[b];
                double tie = lower + part[i] * (upper - lower);
                if (tie < best) {
                    best = tie;
                    chosen = i;
                }
            }
    }
    pairs->first[k] = chosen / columns;
    pairs->second[k] = chosen % columns;
    pairs->top[k] = gain[pairs->first[k]];
    pairs->bottom[k] = gain[pairs->second[k]];
}

/* Cost of more level of a class. */
static double slope_of(const Pairs *pairs, const double *prices, Py_ssize_t k)
{
    return (prices[pairs->first[k]] - prices[pairs->second[k]]) /
           (pairs->top[k] - pairs->bottom[k]);
}

/* Cost of a column above the class's way. */
static double spare_of(
    const Pairs *pairs, const double *prices, double slope, Py_ssize_t k, Py_ssize_t column)
{
    double start = prices[pairs->second[k]] - slope * pairs->bottom[k];
    return prices[column] - start - slope * gains_of(pairs, k)[column];
}

static double tie_spare_of(const Pairs *pairs, Py_ssize_t k, Py_ssize_t column)
{
    const double *gain = gains_of(pairs, k), *tie_cost = gain + pairs->columns;
    const double *prices = pairs->tie_prices;
    int64_t a = pairs->first[k], b = pairs->second[k];
    double lower = prices[b] + tie_cost[b];
    double slope = (prices[a] + tie_cost[a] - lower) / (pairs->top[k] - pairs->bottom[k]);
    return prices[column] + tie_cost[column] - lower - slope * (gain[column] - pairs->bottom[k]);
}

/* Whether a class is neither idle nor at its cap. */
static int may_move(const Pairs *pairs, Py_ssize_t k)
{
    return pairs->level[k] > 0.0 && pairs->level[k] < cap_of(pairs, k) * (1 - TIED);
}

static int is_alternative(const Pairs *pairs, Py_ssize_t k, Py_ssize_t column)
{
    return column != pairs->first[k] && column != pairs->second[k] &&
           (column == pairs->columns - 1 || gains_of(pairs, k)[column] > 0.0);
}

/* choose_pairs(table, ends, state, level, prices, tie_prices, among): pairs are filled */
static PyObject *choose_pairs(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    PyObject *answer = NULL;
    Pairs pairs;
    if (!take_all(&arguments, args, n_args, "dejdddi") || !take_pairs(&pairs, arguments.arrays))
        goto end;
    const Array *among = &arguments.arrays[6];
    if (!all_below(among, 0, pairs.classes)) {
        wrong_sizes();
        goto end;
    }
    for (Py_ssize_t i = 0; i < items(among); i++)
        choose_pair(&pairs, ((const int64_t *)among->view.buf)[i]);
    answer = Py_NewRef(Py_None);
end:
    return give(answer, &arguments);
}

/* stage_use(table, ends, state, level, prices, tie_prices, held, rate, again) -> devices used in
   each column, and more of them per theta; pairs that do not span their levels are chosen first
   if ``again`` is not 0 */
static PyObject *stage_use(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL, *all_used = NULL, *all_risen = NULL;
    Pairs pairs;
    if (!take_all(&arguments, args, n_args, "dejdddddx") || !take_pairs(&pairs, arrays))
        goto end;
    if (items(&arrays[6]) != pairs.classes || items(&arrays[7]) != pairs.classes) {
        wrong_sizes();
        goto end;
    }
    const double *held = arrays[6].view.buf, *rate = arrays[7].view.buf, *level = pairs.level;
    double sums[4 * MAX_COLUMNS] = {0};
    double *used = sums, *rest = used + MAX_COLUMNS;
    double *risen = rest + MAX_COLUMNS, *fallen = risen + MAX_COLUMNS;
    for (Py_ssize_t k = 0; k < pairs.classes; k++) {
        if (arguments.numbers[8] != 0.0 && !pairs.basic[k] &&
            (level[k] > pairs.top[k] * (1 + AT_LEVEL) ||
             level[k] < pairs.bottom[k] * (1 - AT_LEVEL)))
            choose_pair(&pairs, k);
        double rise = pairs.top[k] - pairs.bottom[k];
        double upper = held[k] * ((level[k] - pairs.bottom[k]) / rise);
        double more = held[k] * rate[k] / rise;
        used[pairs.first[k]] += upper;
        rest[pairs.second[k]] += held[k] - upper;
        risen[pairs.first[k]] += more;
        fallen[pairs.second[k]] += more;
    }
    for (Py_ssize_t c = 0; c < pairs.columns; c++) {
        used[c] += rest[c];
        risen[c] -= fallen[c];
    }
    all_used = list_of(used, pairs.columns);
    all_risen = list_of(risen, pairs.columns);
    if (all_used && all_risen)
        answer = PyTuple_Pack(2, all_used, all_risen);
end:
    Py_XDECREF(all_used);
    Py_XDECREF(all_risen);
    return give(answer, &arguments);
}

/* tied_columns(table, ends, state, level, prices, tie_prices, most, above) -> places (class ×
   columns) of the alternatives that cost at most so much more, where more level costs above that */
static PyObject *tied_columns(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    PyObject *answer = NULL;
    Pairs pairs;
    if (!take_all(&arguments, args, n_args, "dejdddxx") || !take_pairs(&pairs, arguments.arrays))
        goto end;
    double most = arguments.numbers[6], above = arguments.numbers[7];
    answer = PyList_New(0);
    for (Py_ssize_t k = 0; answer && k < pairs.classes; k++) {
        double slope = slope_of(&pairs, pairs.prices, k);
        if (!(slope > above) || !may_move(&pairs, k))
            continue;
        for (Py_ssize_t c = 0; answer && c < pairs.columns; c++) {
            if (!is_alternative(&pairs, k, c) ||
                !(spare_of(&pairs, pairs.prices, slope, k, c) <= most))
                continue;
            PyObject *place = PyLong_FromSsize_t(k * pairs.columns + c);
            if (!place || PyList_Append(answer, place) < 0)
                Py_CLEAR(answer);
            Py_XDECREF(place);
        }
    }
end:
    return give(answer, &arguments);
}

/* next_marginal(table, ends, state, level, prices, tie_prices, direction, marginal, until) ->
   how far prices move until the first alternative costs no more, ``until`` at most; the place of
   the one that the tie rule prefers, -1 for none; and when by the tie rule */
static PyObject *next_marginal(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    PyObject *answer = NULL;
    double *rates = NULL;
    int64_t *marginal = NULL;
    Pairs pairs;
    if (!take_all(&arguments, args, n_args, "dejdddd.x") || !take_pairs(&pairs, arguments.arrays))
        goto end;
    Py_ssize_t columns = pairs.columns, places = pairs.classes * columns, chosen = NONE;
    if (items(&arguments.arrays[6]) != columns || !PyList_Check(args[7])) {
        wrong_sizes();
        goto end;
    }
    Py_ssize_t n_marginal = PyList_Size(args[7]);
    const double *direction = arguments.arrays[6].view.buf;
    marginal = numbers_of(args[7], n_marginal);
    rates = calloc(2 * places + 1, sizeof *rates);
    if (!marginal || !rates) {
        if (marginal)
            PyErr_NoMemory();
        goto end;
    }
    double *ratios = rates + places, least = arguments.numbers[8], best = INFINITY;
    for (Py_ssize_t k = 0; k < pairs.classes; k++) {
        if (!may_move(&pairs, k))
            continue;
        double turn = slope_of(&pairs, direction, k), slope = slope_of(&pairs, pairs.prices, k);
        for (Py_ssize_t c = 0; c < columns; c++) {
            double fall = -spare_of(&pairs, direction, turn, k, c);
            if (!is_alternative(&pairs, k, c) || !(fall > NEAR))
                continue;
            double spare = spare_of(&pairs, pairs.prices, slope, k, c);
            rates[k * columns + c] = fall;
            ratios[k * columns + c] = (spare > 0.0 ? spare : 0.0) / fall;
        }
    }
    for (Py_ssize_t i = 0; i < n_marginal; i++)
        if (marginal[i] >= 0 && marginal[i] < places)
            rates[marginal[i]] = 0.0;
    for (Py_ssize_t i = 0; i < places; i++)
        if (rates[i] > 0.0 && ratios[i] < least)
            least = ratios[i];
    for (Py_ssize_t i = 0; i < places; i++)
        if (rates[i] > 0.0 && ratios[i] <= least + TIED) {
            double tie = tie_spare_of(&pairs, i / columns, i % columns) / rates[i];
            if (chosen == NONE || tie < best) {
                best = tie;
                chosen = i;
            }
        }
    answer = Py_BuildValue("(dnd)", least, chosen, best);
end:
    free(rates);
    free(marginal);
    return give(answer, &arguments);
}

/* -- units ------------------------------------------------------------------------------------ */

/* A round's choice of units of jobs that need one device each. */
typedef struct {
    Py_ssize_t count, width, columns;
    const int64_t *unit, *column, *members;
    const double *weight;
    int64_t *free, *unit_of, *entry_of;
} UnitChoice;

static int any_unit_fits(const UnitChoice *choice)
{
    for (Py_ssize_t c = 0; c < choice->columns; c++)
        if (choice->free[c] > 0)
            return 1;
    return 0;
}

/* Give the members of an entry to a unit, or to none. */
static void mark_members(UnitChoice *choice, int64_t entry, int64_t unit)
{
    const int64_t *members = choice->members + entry * choice->width;
    for (Py_ssize_t m = 0; m < choice->width; m++)
        if (members[m] >= 0)
            choice->unit_of[members[m]] = unit;
}

static void take_unit(UnitChoice *choice, int64_t entry)
{
    choice->entry_of[choice->unit[entry]] = entry;
    choice->free[choice->column[entry]]--;
    mark_members(choice, entry, choice->unit[entry]);
}

static void drop_unit(UnitChoice *choice, int64_t entry)
{
    choice->entry_of[choice->unit[entry]] = NONE;
    choice->free[choice->column[entry]]++;
    mark_members(choice, entry, NONE);
}

/* UnitSelection._pick; entries are noted in ``taken``. */
static Py_ssize_t pick_units(UnitChoice *choice, int64_t *taken)
{
    Py_ssize_t count = 0;
    if (!any_unit_fits(choice))
        return 0;
    for (Py_ssize_t i = 0; i < choice->count; i++) {
        const int64_t *members = choice->members + i * choice->width;
        int waits = choice->free[choice->column[i]] > 0;
        for (Py_ssize_t m = 0; waits && m < choice->width; m++)
            waits = members[m] < 0 || choice->unit_of[members[m]] < 0;
        if (waits) {
            take_unit(choice, i);
            taken[count++] = i;
        }
    }
    return count;
}

/* UnitSelection._exchange; there is room for all entries in ``taken``, for a unit's in ``out``. */
static void exchange_unit(UnitChoice *choice, int64_t entry, int64_t *taken, int64_t *out)
{
    Py_ssize_t dropped = 0;
    for (Py_ssize_t m = 0; m < choice->width; m++) {
        int64_t row = choice->members[entry * choice->width + m];
        int64_t unit = row < 0 ? NONE : choice->unit_of[row];
        Py_ssize_t at = 0;
        while (at < dropped && out[at] < unit)
            at++;
        if (unit < 0 || (at < dropped && out[at] == unit))
            continue;
        memmove(out + at + 1, out + at, (dropped - at) * sizeof *out);
        out[at] = unit;
        dropped++;
    }
    double gain = 0.0, loss = 0.0;
    for (Py_ssize_t d = 0; d < dropped; d++) {
        out[d] = choice->entry_of[out[d]];
        drop_unit(choice, out[d]);
        loss += choice->weight[out[d]];
    }
    take_unit(choice, entry);
    taken[0] = entry;
    Py_ssize_t count = 1 + pick_units(choice, taken + 1);
    for (Py_ssize_t t = 0; t < count; t++)
        gain += choice->weight[taken[t]];
    if (gain - loss > MIN_GAIN)
        return;
    for (Py_ssize_t t = 0; t < count; t++)
        drop_unit(choice, taken[t]);
    for (Py_ssize_t d = 0; d < dropped; d++)
        take_unit(choice, out[d]);
}

/* UnitSelection._improve */
static void improve_units(UnitChoice *choice, int64_t *taken, int64_t *out)
{
    int trials = 0;
    for (Py_ssize_t i = 0; i < choice->count; i++) {
        if (choice->free[choice->column[i]] <= 0 || choice->entry_of[choice->unit[i]] == i)
            continue;
        exchange_unit(choice, i, taken, out);
        if (++trials == MAX_TRIALS || !any_unit_fits(choice))
            return;
    }
}

/* assign_units(unit, column, weight, members, free, unit_of, entry_of): the last three are updated;
   both of units and entries begin with -1 */
static PyObject *assign_units(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    int64_t *free_in = NULL, *room = NULL;
    if (!take_all(&arguments, args, n_args, "iidi.jj"))
        goto end;
    Py_ssize_t count = items(&arrays[0]), width = count ? items(&arrays[3]) / count : 0;
    Py_ssize_t columns = PyList_Check(args[4]) ? PyList_Size(args[4]) : 0;
    if (items(&arrays[1]) != count || items(&arrays[2]) != count ||
        items(&arrays[3]) != count * width || !all_below(&arrays[0], 0, items(&arrays[6])) ||
        !all_below(&arrays[1], 0, columns) || !all_below(&arrays[3], NONE, items(&arrays[5])) ||
        !all_below(&arrays[5], NONE, 0) || !all_below(&arrays[6], NONE, 0)) {
        wrong_sizes();
        goto end;
    }
    free_in = numbers_of(args[4], columns);
    room = malloc((count + width + 2) * sizeof *room);
    if (!free_in || !room) {
        if (free_in)
            PyErr_NoMemory();
        goto end;
    }
    UnitChoice choice = {
        count, width, columns, arrays[0].view.buf, arrays[1].view.buf, arrays[3].view.buf,
        arrays[2].view.buf, free_in, arrays[5].view.buf, arrays[6].view.buf};
    Py_ssize_t taken = pick_units(&choice, room);
    if (any_unit_fits(&choice) && taken < count)
        improve_units(&choice, room, room + count + 1);
    if (write_back(args[4], free_in, columns))
        answer = Py_NewRef(Py_None);
end:
    free(free_in);
    free(room);
    return give(answer, &arguments);
}

/* -- turns on devices -------------------------------------------------------------------------- */

static const double MAX_RANK = 2251799813685248.0, HALF_UNIT = 2.220446049250313e-16;

/* Round a rank whose product is too close to a half to be sure; -1 with an error set. */
static int round_exactly(double pass, int decimals, double scale, double *rank)
{
    char *text = PyOS_double_to_string(pass, 'f', decimals, 0, NULL);
    if (!text)
        return -1;
    double rounded = PyOS_string_to_double(text, NULL, NULL);
    PyMem_Free(text);
    if (PyErr_Occurred())
        return -1;
    *rank = rint(rounded * scale);
    return 0;
}

/* Rank passes by their rounded values; 0: too large, -1 with an error set. */
static int rank_passes(const double *passes, Py_ssize_t count, int decimals, double *ranks)
{
    double scale = 1.0, most = 1.0;
    for (int i = 0; i < decimals; i++)
        scale *= 10.0;
    for (Py_ssize_t i = 0; i < count; i++) {
        double size = fabs(passes[i] * scale);
        if (!(size < MAX_RANK))
            return 0;
        most = size > most ? size : most;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        double scaled = passes[i] * scale;
        ranks[i] = rint(scaled);
        if (fabs(fabs(scaled - ranks[i]) - 0.5) <= most * HALF_UNIT &&
            round_exactly(passes[i], decimals, scale, &ranks[i]) < 0)
            return -1;
    }
    return 1;
}

/* pass_ranks(passes, decimals, ranks) -> whether they are exact; the last changes */
static PyObject *pass_ranks(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "dxe"))
        goto end;
    const Array *passes = &arguments.arrays[0], *ranks = &arguments.arrays[2];
    /* As a double: a number that no int holds, or none at all, must not become one. */
    if (items(ranks) != items(passes) ||
        !(arguments.numbers[1] >= 0.0 && arguments.numbers[1] <= 15.0)) {
        wrong_sizes();
        goto end;
    }
    int fits = rank_passes(
        passes->view.buf, items(passes), (int)arguments.numbers[1], ranks->view.buf);
    if (fits >= 0)
        answer = PyBool_FromLong(fits);
end:
    return give(answer, &arguments);
}

/* The sites of a round: their devices, and the rows that run there. */
typedef struct {
    const int64_t *begin, *devices, *home;
    Py_ssize_t rows, sites, n_devices;
    int64_t *taken;  /* sites → rows that run */
    int64_t *chosen; /* as long as the devices: the rows that run, site by site */
    int64_t *in_turn;
    int64_t *holder; /* devices → row that stays, or -1 */
    int64_t *site_of;
    int64_t *free;   /* as long as the devices: the free ones, site by site */
    int64_t *n_free;
    Py_ssize_t n_chosen, last;
} Round;

static int open_round(Round *round, const Array *arrays)
{
    round->home = arrays[1].view.buf;
    round->begin = arrays[3].view.buf;
    round->devices = arrays[4].view.buf;
    round->rows = items(&arrays[1]);
    round->sites = items(&arrays[3]) - 1;
    round->n_devices = items(&arrays[4]);
    Py_ssize_t rows = round->rows, sites = round->sites, count = round->n_devices;
    if (sites < 0 || items(&arrays[0]) != rows || items(&arrays[6]) != rows ||
        items(&arrays[7]) != 3 * rows || (arrays[2].open && items(&arrays[2]) != rows) ||
        round->begin[0] != 0 || round->begin[sites] != count)
        return wrong_sizes();
    for (Py_ssize_t s = 0; s < sites; s++)
        if (round->begin[s] > round->begin[s + 1])
            return wrong_sizes();
    const int64_t *order = arrays[0].view.buf, *device = arrays[6].view.buf;
    for (Py_ssize_t d = 0; d < count; d++) {
        if (round->devices[d] < 0 || round->devices[d] > INT32_MAX)
            return wrong_sizes();
        round->last = round->devices[d] > round->last ? round->devices[d] : round->last;
    }
    for (Py_ssize_t i = 0; i < rows; i++)
        if (round->home[i] < 0 || round->home[i] >= sites || order[i] < 0 || order[i] >= rows ||
            device[i] > round->last)
            return wrong_sizes();
    int64_t *room = malloc((2 * (sites + count + round->last + 2) + rows) * sizeof(int64_t));
    if (!room) {
        PyErr_NoMemory();
        return 0;
    }
    round->taken = room;
    round->n_free = room + sites;
    round->chosen = round->n_free + sites;
    round->free = round->chosen + count;
    round->in_turn = round->free + count;
    round->holder = round->in_turn + rows;
    round->site_of = round->holder + round->last + 1;
    for (Py_ssize_t d = 0; d <= round->last; d++)
        round->site_of[d] = -1;
    for (Py_ssize_t s = 0; s < sites; s++)
        for (int64_t d = round->begin[s]; d < round->begin[s + 1]; d++) {
            if (round->site_of[round->devices[d]] >= 0) /* listed twice */
                return wrong_sizes();
            round->site_of[round->devices[d]] = s;
        }
    return 1;
}

/* Choose the rows that run: in their order, or site by site. */
static int choose_in_turn(Round *round, const Array *order, const Array *sites)
{
    const int64_t *rows = order->view.buf;
    memset(round->taken, 0, 2 * round->sites * sizeof(int64_t));
    round->n_chosen = 0;
    for (Py_ssize_t i = 0; i < round->rows; i++) {
        int64_t row = rows[i], site = round->home[row];
        int64_t begin = round->begin[site];
        if (round->taken[site] < round->begin[site + 1] - begin) {
            round->chosen[begin + round->taken[site]++] = row;
            round->in_turn[round->n_chosen++] = row;
        }
    }
    if (!sites->open)
        return 1;
    const int64_t *in_order = sites->view.buf;
    round->n_chosen = 0;
    for (Py_ssize_t i = 0; i < items(sites); i++) {
        int64_t site = in_order[i];
        if (site < 0 || site >= round->sites ||
            round->n_chosen + round->taken[site] > round->rows)
            return wrong_sizes();
        for (int64_t k = 0; k < round->taken[site]; k++)
            round->in_turn[round->n_chosen++] = round->chosen[round->begin[site] + k];
    }
    return 1;
}

/* Take a free device of a site: the first, or from the job's own place on. */
static int64_t take_device(Round *round, int64_t site, const int64_t *job)
{
    int64_t *here = round->free + round->begin[site], count = round->n_free[site]--, place = 0;
    if (job) {
        int64_t size = round->begin[site + 1] - round->begin[site];
        int64_t behind = (here[0] - *job) % size;
        int64_t wanted = here[0] + size - (behind < 0 ? behind + size : behind);
        while (place < count && here[place] < wanted)
            place++;
        place %= count;
    }
    int64_t device = here[place];
    memmove(here + place, here + place + 1, (count - place - 1) * sizeof(int64_t));
    return device;
}

/* Let the rows take turns: `device` changes; `moves` are rows that stop and start, and devices. */
static int move_in_turn(Round *round, const Array *arrays, int64_t *stops, int64_t *starts)
{
    if (!choose_in_turn(round, &arrays[0], &arrays[5]))
        return 0;
    const int64_t *job = arrays[2].open ? arrays[2].view.buf : NULL;
    int64_t *device = arrays[6].view.buf, *stop = arrays[7].view.buf;
    int64_t *start = stop + round->rows, *on = start + round->rows;
    *stops = *starts = 0;
    for (Py_ssize_t d = 0; d <= round->last; d++)
        round->holder[d] = -1;
    for (Py_ssize_t i = 0; i < round->rows; i++)
        if (device[i] >= 0)
            round->holder[device[i]] = i;
    /* Those that run keep their device if it is at home. */
    for (Py_ssize_t i = 0; i < round->n_chosen; i++) {
        int64_t row = round->in_turn[i];
        if (device[row] >= 0 && round->site_of[device[row]] == round->home[row])
            round->holder[device[row]] = -2;
        else
            start[(*starts)++] = row;
    }
    for (Py_ssize_t d = 0; d <= round->last; d++)
        if (round->holder[d] >= 0) {
            stop[(*stops)++] = round->holder[d];
            device[round->holder[d]] = -1;
        }
    for (Py_ssize_t s = 0; s < round->sites; s++)
        for (int64_t d = round->begin[s]; d < round->begin[s + 1]; d++)
            if (round->holder[round->devices[d]] != -2)
                round->free[round->begin[s] + round->n_free[s]++] = round->devices[d];
    for (Py_ssize_t i = 0; i < *starts; i++) {
        int64_t row = start[i], site = round->home[row];
        if (!round->n_free[site])
            return wrong_sizes();
        on[i] = device[row] = take_device(round, site, job ? job + row : NULL);
    }
    return 1;
}

/* device_turns(order, home, job, begin, devices, sites, device, moves) -> rows that stop and start;
   the last two change */
static PyObject *device_turns(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Round round = {0};
    PyObject *answer = NULL;
    int64_t stops, starts;
    if (take_all(&arguments, args, n_args, "ii?iii?ijj") &&
        open_round(&round, arguments.arrays) &&
        move_in_turn(&round, arguments.arrays, &stops, &starts))
        answer = Py_BuildValue("LL", (long long)stops, (long long)starts);
    free(round.taken);
    return give(answer, &arguments);
}

/* -- rounds of turns -------------------------------------------------------------------------- */

/* The columns of a TurnRun, as _tickets/turn_run.py names them. */
enum { AT, LAST_AT, ROUND_S, NEXT_EVENT_AT, RESTORE_COST_S, ENDED_AT, CLOCK };
enum { N_FREE, NEXT_EPOCH, PLANNED_EPOCH, ROUNDS, EARLY, COUNTS };
enum {
    COUNTED_AT, HELD_FROM, PROGRESS_FROM, RATE, DONE, TOTAL, FINISH_AT, SAVED, STEPS, STARTED_AT,
    FIRST_STEPS_AT, UTILIZATION, MEMORY, MEASURED_AT, MEASURED_RATE, TURN_NUMBERS
};
enum { DEVICE, LEASE, FIRST, PREEMPTIONS, MIGRATIONS, MEASURED_LEASE, TURN_INTS };
enum { TURN_ARGUMENTS = 12, MAX_ROUNDS = 4096, SLOT_LIMIT = 1 << 20, MAX_SUMMED = 7 };
static const double FIRST_STEPS = 100.0;

/* Rounds in which rows take turns, with the tables of the scheduler and the virtual cluster. */
typedef struct {
    Py_ssize_t rows, width;
    double *clock, *numbers, *received, *device_s;
    const double *speed;
    int64_t *counts, *free, *ints;
    const int64_t *accelerator_of;
    Array turns[8]; /* as those of device_turns */
    Round round;
    double *now;    /* rows × accelerators → seconds received by now */
    double *passes; /* rows → pass in this round */
    double *ranks, *spare;
    int64_t *order, *merged, *before;
    int64_t *moves, stops, starts;
} Rounds;

static double *number(const Rounds *rounds, int column)
{
    return rounds->numbers + column * rounds->rows;
}

static int64_t *integer(const Rounds *rounds, int column)
{
    return rounds->ints + column * rounds->rows;
}

static void set_view(Array *array, void *buffer, Py_ssize_t count)
{
    array->view.buf = buffer;
    array->view.len = count * 8;
    array->open = 1;
}

/* Take clock, counts, free, numbers, ints, times, accelerator_of, and home, job, begin, devices and
   sites as device_turns has them. */
static int open_rounds(Rounds *rounds, const Array *arrays)
{
    Py_ssize_t n = rounds->rows = items(&arrays[7]), devices = items(&arrays[6]);
    Py_ssize_t width = rounds->width = n ? items(&arrays[5]) / n / 3 : 0;
    if (!n || width < 1 || width > MAX_SUMMED || items(&arrays[0]) != CLOCK ||
        items(&arrays[1]) != COUNTS || items(&arrays[3]) != TURN_NUMBERS * n ||
        items(&arrays[4]) != TURN_INTS * n || items(&arrays[5]) != 3 * n * width ||
        !all_below(&arrays[6], 0, width) || !all_below(&arrays[10], 0, devices))
        return wrong_sizes();
    rounds->clock = arrays[0].view.buf;
    rounds->counts = arrays[1].view.buf;
    rounds->free = arrays[2].view.buf;
    rounds->numbers = arrays[3].view.buf;
    rounds->ints = arrays[4].view.buf;
    rounds->received = arrays[5].view.buf;
    rounds->device_s = rounds->received + n * width;
    rounds->speed = rounds->device_s + n * width;
    rounds->accelerator_of = arrays[6].view.buf;
    double *room = malloc((n * width + 3 * n + (6 * n)) * sizeof(double));
    if (!room) {
        PyErr_NoMemory();
        return 0;
    }
    rounds->now = room;
    rounds->passes = rounds->now + n * width;
    rounds->ranks = rounds->passes + n;
    rounds->spare = rounds->ranks + n;
    rounds->order = (int64_t *)(rounds->spare + n);
    rounds->merged = rounds->order + n;
    rounds->before = rounds->merged + n;
    rounds->moves = rounds->before + n;
    int64_t held = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        rounds->order[i] = i;
        int64_t device = integer(rounds, DEVICE)[i];
        if (device < NONE || device >= devices || (device < 0) != (integer(rounds, LEASE)[i] < 0))
            return wrong_sizes();
        held += device >= 0;
    }
    if (rounds->counts[N_FREE] < 0 || rounds->counts[N_FREE] + held > items(&arrays[2]))
        return wrong_sizes();
    set_view(&rounds->turns[0], rounds->order, n);
    for (int i = 1; i < 6; i++)
        rounds->turns[i] = arrays[6 + i];
    set_view(&rounds->turns[6], integer(rounds, DEVICE), n);
    set_view(&rounds->turns[7], rounds->moves, 3 * n);
    return open_round(&rounds->round, rounds->turns);
}

static void close_rounds(Rounds *rounds)
{
    free(rounds->now);
    free(rounds->round.taken);
}

/* Sort the rows by their ranks, equal ones by row: merges of ever longer runs. */
static void sort_by_rank(Rounds *rounds)
{
    const double *rank = rounds->ranks;
    Py_ssize_t n = rounds->rows;
    int64_t *from = rounds->order, *to = rounds->merged;
    for (Py_ssize_t i = 0; i < n; i++)
        from[i] = i;
    for (Py_ssize_t size = 1; size < n; size *= 2) {
        for (Py_ssize_t low = 0; low < n; low += 2 * size) {
            Py_ssize_t middle = low + size < n ? low + size : n;
            Py_ssize_t high = low + 2 * size < n ? low + 2 * size : n;
            Py_ssize_t a = low, b = middle, k = low;
            while (a < middle && b < high)
                to[k++] = rank[from[b]] < rank[from[a]] ? from[b++] : from[a++];
            while (a < middle)
                to[k++] = from[a++];
            while (b < high)
                to[k++] = from[b++];
        }
        int64_t *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != rounds->order)
        memcpy(rounds->order, from, n * sizeof(int64_t));
}

/* Count the time that rows have received by now, as received_by_row. */
static void count_received(Rounds *rounds, double at)
{
    const int64_t *device = integer(rounds, DEVICE);
    const double *counted_at = number(rounds, COUNTED_AT);
    memcpy(rounds->now, rounds->received, rounds->rows * rounds->width * sizeof(double));
    for (Py_ssize_t i = 0; i < rounds->rows; i++)
        if (device[i] >= 0)
            rounds->now[i * rounds->width + rounds->accelerator_of[device[i]]] +=
                at - counted_at[i];
}

static int is_measured(const Rounds *rounds, Py_ssize_t row, double at)
{
    return integer(rounds, LEASE)[row] >= 0 && number(rounds, PROGRESS_FROM)[row] < at;
}

/* Return whether a free slot exists for every start, none of them by a row that stops, too. */
static int can_apply(const Rounds *rounds)
{
    const int64_t *start = rounds->moves + rounds->rows, *on = start + rounds->rows;
    int64_t at_once = 0;
    for (int64_t i = 0; i < rounds->starts; i++) {
        if (rounds->before[start[i]] >= 0)
            return 0;
        at_once += rounds->round.holder[on[i]] < 0;
    }
    return at_once <= rounds->counts[N_FREE];
}

/* Start rows on devices that were free before, or on those of rows that have stopped. */
static void start_rows(Rounds *rounds, double at, int released)
{
    const int64_t *start = rounds->moves + rounds->rows, *on = start + rounds->rows;
    int64_t *counts = rounds->counts, count = 0;
    for (int64_t i = 0; i < rounds->starts; i++)
        count += (rounds->round.holder[on[i]] >= 0) == released;
    const int64_t *slot = rounds->free + (counts[N_FREE] -= count);
    for (int64_t i = 0; i < rounds->starts; i++) {
        if ((rounds->round.holder[on[i]] >= 0) != released)
            continue;
        int64_t row = start[i], device = on[i], *first = integer(rounds, FIRST) + row;
        integer(rounds, LEASE)[row] = counts[NEXT_EPOCH]++ * SLOT_LIMIT + *slot++;
        int fresh = *first < 0;
        double from = fresh ? at : at + rounds->clock[RESTORE_COST_S];
        integer(rounds, MIGRATIONS)[row] += *first != device;
        if (fresh) {
            number(rounds, STARTED_AT)[row] = at;
            integer(rounds, MIGRATIONS)[row] = 0;
        }
        *first = device;
        double rate = rounds->speed[row * rounds->width + rounds->accelerator_of[device]];
        number(rounds, COUNTED_AT)[row] = number(rounds, HELD_FROM)[row] = at;
        number(rounds, PROGRESS_FROM)[row] = from;
        number(rounds, RATE)[row] = rate;
        number(rounds, FINISH_AT)[row] =
            from + (number(rounds, TOTAL)[row] - number(rounds, DONE)[row]) / rate;
    }
}

/* End the lease of a row: its steps, its time and its slot. */
static void stop_row(Rounds *rounds, int64_t row, double at)
{
    double *done = number(rounds, DONE) + row, *saved = number(rounds, SAVED) + row;
    double *first_steps_at = number(rounds, FIRST_STEPS_AT) + row;
    double from = number(rounds, PROGRESS_FROM)[row], rate = number(rounds, RATE)[row];
    double worked = at - from > 0.0 ? at - from : 0.0, after = *done + worked * rate;
    double total = number(rounds, TOTAL)[row], goal = total < FIRST_STEPS ? total : FIRST_STEPS;
    if (isnan(*first_steps_at) && after >= goal) {
        *first_steps_at = from + (goal - *done) / rate;
        rounds->counts[EARLY]--;
    }
    Py_ssize_t entry = row * rounds->width + rounds->accelerator_of[rounds->before[row]];
    rounds->device_s[entry] += at - number(rounds, HELD_FROM)[row];
    rounds->received[entry] += at - number(rounds, COUNTED_AT)[row];
    *done = after;
    number(rounds, STEPS)[row] = *saved = *saved >= after ? *saved : after;
    integer(rounds, PREEMPTIONS)[row]++;
    rounds->free[rounds->counts[N_FREE]++] = integer(rounds, LEASE)[row] & (SLOT_LIMIT - 1);
    integer(rounds, LEASE)[row] = NONE;
}

/* Apply the moves of a round in the order of apply_turn. */
static void apply_moves(Rounds *rounds, double at)
{
    rounds->counts[PLANNED_EPOCH] = rounds->counts[NEXT_EPOCH];
    if (rounds->stops || rounds->starts)
        rounds->clock[ENDED_AT] = at;
    start_rows(rounds, at, 0);
    for (int64_t i = 0; i < rounds->stops; i++)
        stop_row(rounds, rounds->moves[i], at);
    start_rows(rounds, at, 1);
}

/* Return whether another event comes before the round ends or as it does. */
static int has_event_by(const Rounds *rounds, double until)
{
    if (!(until < rounds->clock[NEXT_EVENT_AT]))
        return 1;
    for (Py_ssize_t i = 0; i < rounds->rows; i++)
        if (integer(rounds, LEASE)[i] >= 0 && number(rounds, FINISH_AT)[i] <= until)
            return 1;
    return 0;
}

/* A mechanism's decision: `decide` sets the ranks, 0 if it does not decide, -1 with an error set;
   `keep` makes the decision its last one. */
typedef struct Rule Rule;
struct Rule {
    int (*decide)(Rounds *rounds, Rule *rule, double at);
    void (*keep)(Rounds *rounds, Rule *rule, double at);
    const Array *arrays;
    double *room;
};

/* Take rounds until another event comes or the mechanism decides otherwise. */
static PyObject *take_rounds(Rounds *rounds, Rule *rule)
{
    int64_t *taken = &rounds->counts[ROUNDS];
    for (*taken = 0; *taken < MAX_ROUNDS;) {
        double at = rounds->clock[AT], until = at + rounds->clock[ROUND_S];
        count_received(rounds, at);
        int decided = rule->decide(rounds, rule, at);
        if (decided < 0)
            return NULL;
        if (!decided)
            break;
        sort_by_rank(rounds);
        memcpy(rounds->before, integer(rounds, DEVICE), rounds->rows * sizeof(int64_t));
        if (!move_in_turn(&rounds->round, rounds->turns, &rounds->stops, &rounds->starts))
            return NULL;
        if (!can_apply(rounds)) {
            memcpy(integer(rounds, DEVICE), rounds->before, rounds->rows * sizeof(int64_t));
            break;
        }
        rule->keep(rounds, rule, at);
        apply_moves(rounds, at);
        ++*taken;
        rounds->clock[LAST_AT] = at;
        rounds->clock[AT] = until;
        if (has_event_by(rounds, until))
            break;
    }
    return PyLong_FromLongLong(*taken);
}

/* The rest of the arguments of slice_rounds, and the columns of Gandiva's facts. */
enum { FACTS = TURN_ARGUMENTS, UNIT_TRIALS, UNIT, LIMITS };
enum { SLOW, DISTURBED, SETTLE_S, N_LIMITS };
enum { UNIT_OF, HOME_ACCELERATOR, SETTLED, UNIT_COLUMNS };
enum {
    F_PASS, F_RECEIVED, F_WEIGHT, F_SIZE, F_ACCELERATOR, F_BEST, F_CURRENT, F_UTILIZATION, F_MEMORY,
    F_MOVED_AT
};

static double *facts_of(const Rounds *rounds, const Rule *rule, Py_ssize_t row)
{
    const Array *facts = &rule->arrays[FACTS];
    return (double *)facts->view.buf + row * (items(facts) / rounds->rows);
}

static int is_better(const double *facts, double rate, int64_t accelerator)
{
    return facts[F_ACCELERATOR] != (double)accelerator || !(facts[F_BEST] >= rate);
}

/* As SliceTurns.next_turn, up to the ranks; the facts stay. */
static int decide_slice(Rounds *rounds, Rule *rule, double at)
{
    const double *limits = rule->arrays[LIMITS].view.buf;
    const int64_t *accelerator = rule->arrays[UNIT].view.buf;
    accelerator += HOME_ACCELERATOR * rounds->rows;
    double *total = rounds->spare;
    for (Py_ssize_t i = 0; i < rounds->rows; i++) {
        const double *facts = facts_of(rounds, rule, i), *now = rounds->now + i * rounds->width;
        double current = facts[F_CURRENT], best = facts[F_BEST];
        if (is_measured(rounds, i, at)) {
            current = number(rounds, RATE)[i];
            best = is_better(facts, current, accelerator[i]) ? current : best;
            if (!isnan(limits[SLOW]) && !isnan(number(rounds, UTILIZATION)[i]))
                return 0;
        }
        if (!isnan(limits[DISTURBED]) && current < limits[DISTURBED] * best &&
            at - facts[F_MOVED_AT] >= limits[SETTLE_S])
            return 0;
        total[i] = now[0];
        for (Py_ssize_t k = 1; k < rounds->width; k++)
            total[i] += now[k];
        double since = total[i] - facts[F_RECEIVED];
        rounds->passes[i] = facts[F_PASS] + (since > 0.0 ? since : 0.0) / facts[F_WEIGHT];
    }
    return rank_passes(rounds->passes, rounds->rows, 6, rounds->ranks);
}

static void keep_slice(Rounds *rounds, Rule *rule, double at)
{
    const int64_t *unit = rule->arrays[UNIT].view.buf, *home = rounds->round.home;
    const int64_t *accelerator = unit + HOME_ACCELERATOR * rounds->rows;
    const int64_t *settled = unit + SETTLED * rounds->rows;
    double *trials = rule->arrays[UNIT_TRIALS].view.buf, *latest = rule->room;
    for (Py_ssize_t s = 0; s < rounds->round.sites; s++)
        latest[s] = -INFINITY;
    for (Py_ssize_t i = 0; i < rounds->rows; i++)
        if (settled[i] && rounds->passes[i] > latest[home[i]])
            latest[home[i]] = rounds->passes[i];
    for (Py_ssize_t i = 0; i < rounds->rows; i++) {
        double *facts = facts_of(rounds, rule, i);
        facts[F_PASS] = settled[i] ? latest[home[i]] : rounds->passes[i];
        facts[F_RECEIVED] = rounds->spare[i];
        if (!is_measured(rounds, i, at))
            continue;
        double rate = number(rounds, RATE)[i];
        if (is_better(facts, rate, accelerator[i])) {
            facts[F_ACCELERATOR] = (double)accelerator[i];
            facts[F_BEST] = rate;
        }
        facts[F_CURRENT] = rate;
        facts[F_UTILIZATION] = number(rounds, UTILIZATION)[i];
        facts[F_MEMORY] = number(rounds, MEMORY)[i];
        if (facts[F_BEST] > 0.0)
            trials[3 * unit[i]] = facts[F_CURRENT] / facts[F_BEST];
        number(rounds, MEASURED_AT)[i] = rounds->clock[ENDED_AT] = at;
        number(rounds, MEASURED_RATE)[i] = rate;
        integer(rounds, MEASURED_LEASE)[i] = integer(rounds, LEASE)[i];
    }
}

/* slice_rounds(*run, facts, trials, unit, limits) -> rounds taken; all but the places change */
static PyObject *slice_rounds(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    Rounds rounds = {0};
    Rule rule = {decide_slice, keep_slice, arrays, NULL};
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "ejjejeii?iii?ieeid") || !open_rounds(&rounds, arrays))
        goto end;
    Py_ssize_t n = rounds.rows;
    Array unit_of = arrays[UNIT];
    unit_of.view.len = n * 8;
    if (items(&arrays[UNIT]) != UNIT_COLUMNS * n || items(&arrays[LIMITS]) != N_LIMITS ||
        items(&arrays[FACTS]) % n || items(&arrays[FACTS]) / n <= F_MOVED_AT ||
        !all_below(&unit_of, 0, items(&arrays[UNIT_TRIALS]) / 3)) {
        wrong_sizes();
        goto end;
    }
    rule.room = malloc((rounds.round.sites + 1) * sizeof(double));
    if (rule.room)
        answer = take_rounds(&rounds, &rule);
    else
        PyErr_NoMemory();
end:
    free(rule.room);
    close_rounds(&rounds);
    return give(answer, &arguments);
}

/* The rest of the arguments of quantum_rounds. */
enum { PASSES = TURN_ARGUMENTS, RECEIVED_BEFORE, TENANTS, TENANT, IDLE, SEEN, MAKE_UP };
enum { ROW_PASS, ROW_TICKETS, ROW_STRIDE, ROW_COLUMNS };
enum { T_OWED, T_DUE, T_CHANCE, T_DEMAND, T_FACTOR, T_COLUMNS };
enum { STARTS_AT, QUANTA, UNRAISED, KEPT_PART, TURN_LENGTH, FACTOR_LIMIT, N_MAKE_UP };

static double clipped(double value, double low, double high)
{
    value = value > low ? value : low;
    return value < high ? value : high;
}

/* As owed_by_jobs and _Steady.bounded: the debts after the last quantum; 0 if factors change. */
static int count_owed(Rounds *rounds, Rule *rule, double at, double *owed)
{
    const double *make_up = rule->arrays[MAKE_UP].view.buf;
    const double *before = rule->arrays[RECEIVED_BEFORE].view.buf;
    const int64_t *tenant = rule->arrays[TENANT].view.buf, *idle = rule->arrays[IDLE].view.buf;
    Py_ssize_t tenants = items(&rule->arrays[IDLE]), width = rounds->width;
    Py_ssize_t cells = tenants * width;
    const double *table = rule->arrays[TENANTS].view.buf, *due = table + T_DUE * cells;
    const double *chance = table + T_CHANCE * cells, *demand = table + T_DEMAND * cells;
    const double *factor = table + T_FACTOR * cells;
    double round_s = rounds->clock[ROUND_S], quanta = (at - make_up[STARTS_AT]) / round_s;
    double longest = make_up[FACTOR_LIMIT];
    for (Py_ssize_t c = 0; c < cells; c++)
        owed[c] = table[T_OWED * cells + c] * make_up[KEPT_PART] + due[c] * quanta;
    for (Py_ssize_t i = 0; i < rounds->rows; i++)
        for (Py_ssize_t k = 0; k < width; k++)
            owed[tenant[i] * width + k] -=
                (rounds->now[i * width + k] - before[i * width + k]) / round_s;
    int within = make_up[UNRAISED] != 0.0;
    for (Py_ssize_t c = 0; c < cells; c++) {
        if (idle[c / width])
            owed[c] = 0.0;
        within = within && !(fabs(owed[c]) > chance[c]);
    }
    for (Py_ssize_t c = 0; !within && c < cells; c++) {
        double over = fabs(owed[c]) - chance[c], missed = over > 0.0 ? over : 0.0;
        missed = owed[c] > 0.0 ? missed : owed[c] < 0.0 ? -missed : 0.0;
        double part = due[c] > 0.0 ? missed / (due[c] * make_up[QUANTA]) : 0.0;
        if (clipped(1.0 + part, 1.0 / longest, longest) != factor[c])
            return 0;
        double most = make_up[TURN_LENGTH] * demand[c] +
            (longest - 1.0) * due[c] * make_up[QUANTA];
        owed[c] = clipped(owed[c], -most, most);
    }
    return 1;
}

/* As QuantumTurns.next_turn, up to the ranks. */
static int decide_quantum(Rounds *rounds, Rule *rule, double at)
{
    const double *make_up = rule->arrays[MAKE_UP].view.buf;
    const double *before = rule->arrays[RECEIVED_BEFORE].view.buf;
    const double *table = rule->arrays[PASSES].view.buf;
    const int64_t *seen = rule->arrays[SEEN].view.buf, *home = rounds->round.home;
    Py_ssize_t n = rounds->rows, width = rounds->width, sites = rounds->round.sites;
    const double *tickets = table + ROW_TICKETS * n, *stride = table + ROW_STRIDE * n;
    double *least = rule->room, *passes = rounds->passes;
    if (make_up[QUANTA] != 0.0 && !count_owed(rounds, rule, at, rule->room + sites))
        return 0;
    for (Py_ssize_t s = 0; s < sites; s++)
        least[s] = INFINITY;
    for (Py_ssize_t i = 0; i < n; i++) {
        double had = 0.0;
        for (Py_ssize_t k = 0; k < width; k++) {
            if (rounds->now[i * width + k] > 0.0 && !seen[i * width + k])
                return 0;
            had += rounds->now[i * width + k] - before[i * width + k];
        }
        passes[i] = table[ROW_PASS * n + i] + had / rounds->clock[ROUND_S] * stride[i];
        if (passes[i] < least[home[i]])
            least[home[i]] = passes[i];
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        double first = least[home[i]], ahead = (passes[i] - first) * tickets[i];
        passes[i] = first + (tickets[i] > 0.0 ? ahead / tickets[i] : 0.0);
    }
    return rank_passes(passes, n, 9, rounds->ranks);
}

static void keep_quantum(Rounds *rounds, Rule *rule, double at)
{
    double *make_up = rule->arrays[MAKE_UP].view.buf, *owed = rule->arrays[TENANTS].view.buf;
    Py_ssize_t cells = items(&rule->arrays[IDLE]) * rounds->width;
    memcpy(rule->arrays[PASSES].view.buf, rounds->passes, rounds->rows * sizeof(double));
    memcpy(rule->arrays[RECEIVED_BEFORE].view.buf, rounds->now,
        rounds->rows * rounds->width * sizeof(double));
    if (make_up[QUANTA] != 0.0)
        memcpy(owed + T_OWED * cells, rule->room + rounds->round.sites, cells * sizeof(double));
    make_up[STARTS_AT] = at;
}

/* quantum_rounds(*run, passes, received, tenants, tenant, idle, seen, make_up) -> rounds taken */
static PyObject *quantum_rounds(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    Rounds rounds = {0};
    Rule rule = {decide_quantum, keep_quantum, arrays, NULL};
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "ejjejeii?iii?ieeeiiie") ||
        !open_rounds(&rounds, arrays))
        goto end;
    Py_ssize_t n = rounds.rows, tenants = items(&arrays[IDLE]), width = rounds.width;
    if (items(&arrays[PASSES]) != ROW_COLUMNS * n || items(&arrays[RECEIVED_BEFORE]) != n * width ||
        items(&arrays[TENANTS]) != T_COLUMNS * tenants * width || items(&arrays[TENANT]) != n ||
        items(&arrays[SEEN]) != n * width || items(&arrays[MAKE_UP]) != N_MAKE_UP ||
        !all_below(&arrays[TENANT], 0, tenants)) {
        wrong_sizes();
        goto end;
    }
    rule.room = malloc((rounds.round.sites + tenants * width + 1) * sizeof(double));
    if (rule.room)
        answer = take_rounds(&rounds, &rule);
    else
        PyErr_NoMemory();
end:
    free(rule.room);
    close_rounds(&rounds);
    return give(answer, &arguments);
}

/* -- packed pairs ------------------------------------------------------------------------------ */

/* near_pairs(name, block, alone, value, price, time_price, limit, code): the last one is filled as
   far as it reaches; the answer is the number of pairs */
static PyObject *near_pairs(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    Array *arrays = arguments.arrays;
    PyObject *answer = NULL;
    if (!take_all(&arguments, args, n_args, "idddddxj"))
        goto end;
    Py_ssize_t n = items(&arrays[0]), width = items(&arrays[4]), room = items(&arrays[7]);
    Py_ssize_t workloads = arrays[1].view.ndim == 3 ? arrays[1].view.shape[0] : 0;
    if (items(&arrays[1]) != workloads * workloads * width || items(&arrays[2]) != n * width ||
        items(&arrays[3]) != n * width || items(&arrays[5]) != n ||
        !all_below(&arrays[0], 0, workloads)) {
        wrong_sizes();
        goto end;
    }
    const int64_t *name = arrays[0].view.buf;
    const double *block = arrays[1].view.buf, *alone = arrays[2].view.buf;
    const double *value = arrays[3].view.buf, *price = arrays[4].view.buf;
    const double *time_price = arrays[5].view.buf, limit = arguments.numbers[6];
    int64_t *code = arrays[7].view.buf;
    Py_ssize_t pairs = 0;
    for (Py_ssize_t a = 0; a < n; a++)
        for (Py_ssize_t b = a + 1; b < n; b++) {
            const double *first = block + (name[a] * workloads + name[b]) * width;
            const double *second = block + (name[b] * workloads + name[a]) * width;
            const double *first_alone = alone + a * width, *second_alone = alone + b * width;
            for (Py_ssize_t j = 0; j < width; j++) {
                double worth = first[j] * value[a * width + j] + second[j] * value[b * width + j];
                if (!(price[j] + time_price[a] + time_price[b] - worth <= limit))
                    continue;
                if (!(first[j] > 0.0 && second[j] > 0.0 && first_alone[j] > 0.0 &&
                      second_alone[j] > 0.0) ||
                    !(first[j] / first_alone[j] + second[j] / second_alone[j] > 1.0))
                    continue;
                if (pairs < room)
                    code[pairs] = (a * n + b) * width + j;
                pairs++;
            }
        }
    answer = PyLong_FromSsize_t(pairs);
end:
    return give(answer, &arguments);
}

/* -- homes and tickets of gandiva-fair -------------------------------------------------------- */

static const double STEADY = 1e-7, LEAST_PART = 1.0 / 16, SLOWER = -1e-9, NO_DEMAND = 1e-300;
enum { FILLINGS = 32 };

/* The claims of jobs to the devices of sites, with room for what is computed for each. */
typedef struct {
    const int64_t *row, *site, *devices, *gang, *tenant, *size;
    Py_ssize_t count, sites, rows, tenants;
    double *weight, *got;   /* claims → tickets now, and devices */
    double *left, *mass;    /* sites → devices for a ticket, and tickets of open claims */
    double *before;         /* rows → what the last filling served */
    double *factor, *total; /* tenants */
    char *open;
} Claims;

/* Divide each site's devices by weight, none above what a claim can use, as _fill_sites does. */
static void fill_sites(Claims *claims)
{
    memset(claims->open, 1, claims->count);
    for (int full = 1; full;) {
        memset(claims->left, 0, claims->sites * sizeof *claims->left);
        memset(claims->mass, 0, claims->sites * sizeof *claims->mass);
        for (Py_ssize_t i = 0; i < claims->count; i++) {
            if (claims->open[i])
                claims->mass[claims->site[i]] += claims->weight[i];
            else
                claims->left[claims->site[i]] += (double)claims->devices[i];
        }
        for (Py_ssize_t s = 0; s < claims->sites; s++)
            claims->left[s] = ((double)claims->size[s] - claims->left[s]) / claims->mass[s];
        full = 0;
        for (Py_ssize_t i = 0; i < claims->count; i++) {
            if (!claims->open[i])
                continue;
            claims->got[i] = claims->weight[i] * claims->left[claims->site[i]];
            if (claims->got[i] >= (double)claims->devices[i])
                full = 1;
        }
        for (Py_ssize_t i = 0; i < claims->count; i++) {
            if (claims->open[i] && claims->got[i] >= (double)claims->devices[i]) {
                claims->got[i] = (double)claims->devices[i];
                claims->open[i] = 0;
            }
        }
    }
}

static double part_of(const Claims *claims, Py_ssize_t i)
{
    return (double)claims->devices[i] / (double)claims->gang[i];
}

/* Fill sites until every tenant has stepped back far enough, as serviceable_tickets does. */
static void serve(Claims *claims, const double *tickets, const double *due, double *served)
{
    for (Py_ssize_t t = 0; t < claims->tenants; t++)
        claims->factor[t] = 1.0;
    memset(served, 0, claims->rows * sizeof *served);
    for (int filling = 0; filling < FILLINGS; filling++) {
        for (Py_ssize_t i = 0; i < claims->count; i++) {
            double base = tickets[claims->row[i]] * part_of(claims, i);
            claims->weight[i] = base * claims->factor[claims->tenant[i]];
        }
        fill_sites(claims);
        for (Py_ssize_t row = 0; row < claims->rows; row++) {
            claims->before[row] = served[row];
            served[row] = INFINITY;
        }
        for (Py_ssize_t i = 0; i < claims->count; i++) {
            double worth = claims->got[i] / part_of(claims, i), *least = &served[claims->row[i]];
            if (worth < *least || isnan(worth))
                *least = worth;
        }
        int settled = 1;
        for (Py_ssize_t row = 0; row < claims->rows; row++) {
            if (isinf(served[row]))
                served[row] = 0.0;
            settled &= fabs(served[row] - claims->before[row]) <= STEADY;
        }
        if (settled)
            return;
        memset(claims->total, 0, claims->tenants * sizeof *claims->total);
        for (Py_ssize_t i = 0; i < claims->count; i++)
            claims->total[claims->tenant[i]] += served[claims->row[i]] * part_of(claims, i);
        for (Py_ssize_t t = 0; t < claims->tenants; t++) {
            double total = claims->total[t];
            double next = claims->factor[t] * (total > 0.0 ? due[t] / total : 1.0);
            if (next < LEAST_PART)
                next = LEAST_PART;
            claims->factor[t] = next > 1.0 ? 1.0 : next;
        }
    }
}

/* served_tickets(row, site, devices, gang, tenant, size, tickets, due, served): the last is filled */
static PyObject *served_tickets(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    PyObject *answer = NULL;
    double *room = NULL;
    Claims claims = {0};
    if (!take_all(&arguments, args, n_args, "iiiiiidde"))
        goto end;
    const Array *arrays = arguments.arrays;
    claims.row = arrays[0].view.buf;
    claims.site = arrays[1].view.buf;
    claims.devices = arrays[2].view.buf;
    claims.gang = arrays[3].view.buf;
    claims.tenant = arrays[4].view.buf;
    claims.size = arrays[5].view.buf;
    claims.count = items(&arrays[0]);
    claims.sites = items(&arrays[5]);
    claims.rows = items(&arrays[6]);
    claims.tenants = items(&arrays[7]);
    for (int i = 1; i < 5; i++) {
        if (items(&arrays[i]) != claims.count) {
            wrong_sizes();
            goto end;
        }
    }
    if (items(&arrays[8]) != claims.rows || !all_below(&arrays[0], 0, claims.rows) ||
        !all_below(&arrays[1], 0, claims.sites) || !all_below(&arrays[4], 0, claims.tenants)) {
        wrong_sizes();
        goto end;
    }
    room = malloc(
        (2 * claims.count + 2 * claims.sites + claims.rows + 2 * claims.tenants + 1) * sizeof *room);
    claims.open = malloc(claims.count + 1);
    if (!room || !claims.open) {
        PyErr_NoMemory();
        goto end;
    }
    claims.weight = room;
    claims.got = claims.weight + claims.count;
    claims.left = claims.got + claims.count;
    claims.mass = claims.left + claims.sites;
    claims.before = claims.mass + claims.sites;
    claims.factor = claims.before + claims.rows;
    claims.total = claims.factor + claims.tenants;
    serve(&claims, arrays[6].view.buf, arrays[7].view.buf, arrays[8].view.buf);
    answer = Py_NewRef(Py_None);
end:
    free(room);
    free(claims.open);
    return give(answer, &arguments);
}

/* The groups of jobs that may migrate, and the tables by profile and tenant. */
typedef struct {
    const int64_t *accelerator, *profile_of; /* rows */
    const int64_t *profile, *source;         /* groups */
    const int64_t *tenant, *gang, *seen;     /* profiles; seen × accelerators */
    const int64_t *capacity;
    const double *speed, *due, *demand, *there, *entitled;
    double *best, *total; /* profiles → greatest speed; tenants → devices, as _totals has them */
    Py_ssize_t rows, groups, profiles, tenants, width;
} Migration;

/* Both are nan if either is, as in numpy. */
static double lesser(double a, double b)
{
    return a <= b || isnan(a) ? a : b;
}

static double greater(double a, double b)
{
    return a >= b || isnan(a) ? a : b;
}

static void add_totals(Migration *all)
{
    Py_ssize_t width = all->width;
    for (Py_ssize_t p = 0; p < all->profiles; p++) {
        all->best[p] = all->speed[p * width];
        for (Py_ssize_t k = 1; k < width; k++)
            all->best[p] = greater(all->best[p], all->speed[p * width + k]);
    }
    memset(all->total, 0, all->tenants * sizeof *all->total);
    for (Py_ssize_t row = 0; row < all->rows; row++) {
        int64_t on = all->accelerator[row], p = all->profile_of[row];
        if (on < 0)
            continue;
        int64_t at = all->tenant[p] * width + on;
        double time = all->due[at] / greater(all->demand[at], NO_DEMAND);
        double speed = all->speed[p * width + on] / all->best[p];
        all->total[all->tenant[p]] += (double)all->gang[p] * time * speed;
    }
}

/* Whether jobs of a group's profile have a home on an accelerator; groups of one lie together. */
static int has_home(const Migration *all, Py_ssize_t group, int64_t accelerator)
{
    const int64_t *profile = all->profile, *source = all->source;
    for (Py_ssize_t g = group; g >= 0 && profile[g] == profile[group]; g--)
        if (source[g] == accelerator)
            return 1;
    for (Py_ssize_t g = group + 1; g < all->groups && profile[g] == profile[group]; g++)
        if (source[g] == accelerator)
            return 1;
    return 0;
}

static void gains_of_group(const Migration *all, Py_ssize_t group, double *gains)
{
    Py_ssize_t width = all->width;
    int64_t p = all->profile[group], source = all->source[group], tenant = all->tenant[p];
    const double *speed = all->speed + p * width, *due = all->due + tenant * width;
    const double *demand = all->demand + tenant * width;
    const double *there = all->there + group * width, *entitled = all->entitled + group * width;
    const int64_t *seen = all->seen + p * width;
    double gang = (double)all->gang[p], here = speed[source];
    double time = due[source] / demand[source];
    double lost = due[source] - lesser(entitled[source], demand[source] - gang);
    for (Py_ssize_t k = 0; k < width; k++) {
        gains[k] = 0.0;
        if (!(speed[k] > 0.0) || !seen[source] || all->capacity[k] < all->gang[p] || k == source)
            continue;
        if (!seen[k]) {
            gains[k] = has_home(all, group, k) ? 0.0 : 1.0 / time - 1.0;
        } else if (here == 0.0) {
            gains[k] = INFINITY;
        } else {
            double own = speed[k] * there[k] / (here * time) - 1.0;
            double won = lesser(entitled[k], demand[k] + gang) - due[k];
            double change = (won * speed[k] - lost * here) / all->best[p];
            gains[k] = own < SLOWER ? 0.0 : greater(own, change / all->total[tenant]);
        }
    }
}

/* migration_gains(accelerator, profile_of, profile, source, tenant, gang, seen, capacity, speed, due,
   demand, there, entitled, gains): the last is filled */
static PyObject *migration_gains(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    PyObject *answer = NULL;
    double *room = NULL;
    if (!take_all(&arguments, args, n_args, "iiiiiiiiddddde"))
        goto end;
    const Array *arrays = arguments.arrays;
    Migration all = {
        .accelerator = arrays[0].view.buf, .profile_of = arrays[1].view.buf,
        .profile = arrays[2].view.buf, .source = arrays[3].view.buf,
        .tenant = arrays[4].view.buf, .gang = arrays[5].view.buf, .seen = arrays[6].view.buf,
        .capacity = arrays[7].view.buf, .speed = arrays[8].view.buf, .due = arrays[9].view.buf,
        .demand = arrays[10].view.buf, .there = arrays[11].view.buf,
        .entitled = arrays[12].view.buf, .rows = items(&arrays[0]), .groups = items(&arrays[2]),
        .profiles = items(&arrays[4]), .width = items(&arrays[7]),
    };
    if (!all.width)
        goto sizes;
    all.tenants = items(&arrays[9]) / all.width;
    if (items(&arrays[1]) != all.rows || items(&arrays[3]) != all.groups ||
        items(&arrays[5]) != all.profiles || items(&arrays[6]) != all.profiles * all.width ||
        items(&arrays[8]) != all.profiles * all.width ||
        items(&arrays[9]) != all.tenants * all.width || items(&arrays[10]) != items(&arrays[9]) ||
        !all_below(&arrays[0], NOBODY, all.width) ||
        !all_below(&arrays[1], 0, all.profiles) || !all_below(&arrays[2], 0, all.profiles) ||
        !all_below(&arrays[3], 0, all.width) || !all_below(&arrays[4], 0, all.tenants))
        goto sizes;
    for (int i = 11; i < 14; i++)
        if (items(&arrays[i]) != all.groups * all.width)
            goto sizes;
    room = malloc((all.profiles + all.tenants + 1) * sizeof *room);
    if (!room) {
        PyErr_NoMemory();
        goto end;
    }
    all.best = room;
    all.total = room + all.profiles;
    add_totals(&all);
    double *gains = arrays[13].view.buf;
    for (Py_ssize_t group = 0; group < all.groups; group++)
        gains_of_group(&all, group, gains + group * all.width);
    answer = Py_NewRef(Py_None);
    goto end;
sizes:
    wrong_sizes();
end:
    free(room);
    return give(answer, &arguments);
}

/* -- copies of HadarE ------------------------------------------------------------------------- */

enum { STEPS_LEFT, ELAPSED, WAIT, NUMERATOR, SINCE, TERMS };

/* Jobs, cells, and the worth of one more copy of each job in each cell. */
typedef struct {
    const double *terms, *speed;      /* TERMS × jobs, and jobs × accelerators */
    const int64_t *gang, *accelerator; /* jobs, and cells */
    const int64_t *most;              /* jobs → copies */
    int64_t *free, *may;              /* cells, and jobs × cells */
    double *so_far, *utility;         /* jobs → speed and utility of its copies */
    double *next;                     /* jobs × accelerators → utility with one more there */
    double *offer;                    /* jobs × cells */
    int64_t *best, *copies;           /* jobs → cell of the best offer, and copies so far */
    Py_ssize_t jobs, cells, width;
} Forking;

static void note_best(Forking *all, Py_ssize_t job)
{
    const double *offer = all->offer + job * all->cells;
    all->best[job] = 0;
    for (Py_ssize_t cell = 1; cell < all->cells; cell++)
        if (offer[cell] > offer[all->best[job]])
            all->best[job] = cell;
}

/* Compute the worth per device of a further copy in each cell, as _CopyOffers._update does. */
static void offer_copies(Forking *all, Py_ssize_t job)
{
    const double *terms = all->terms + job, *speed = all->speed + job * all->width;
    double *next = all->next + job * all->width, *offer = all->offer + job * all->cells;
    Py_ssize_t jobs = all->jobs;
    for (Py_ssize_t k = 0; k < all->width; k++) {
        double time = terms[STEPS_LEFT * jobs] / (all->so_far[job] + speed[k]);
        double until = terms[ELAPSED * jobs] + terms[WAIT * jobs] + time - terms[SINCE * jobs];
        next[k] = isinf(time) ? 0.0 : terms[NUMERATOR * jobs] / until;
    }
    for (Py_ssize_t cell = 0; cell < all->cells; cell++) {
        double worth = (next[all->accelerator[cell]] - all->utility[job]) / (double)all->gang[job];
        int fits = all->may[job * all->cells + cell] && all->free[cell] >= all->gang[job];
        offer[cell] = fits ? worth : 0.0;
    }
    note_best(all, job);
}

/* Add copies while one is worth anything; return how many, their jobs and cells in `added`. */
static Py_ssize_t add_copies(Forking *all, int64_t *added, Py_ssize_t room)
{
    for (Py_ssize_t job = 0; job < all->jobs; job++) {
        all->copies[job] = 1;
        offer_copies(all, job);
    }
    Py_ssize_t count = 0;
    for (; count < room; count++) {
        Py_ssize_t first = -1;
        double most = 0.0;
        for (Py_ssize_t job = 0; job < all->jobs; job++) {
            double offer = all->offer[job * all->cells + all->best[job]];
            if (offer > most) {
                most = offer;
                first = job;
            }
        }
        if (first < 0)
            break;
        Py_ssize_t cell = all->best[first];
        int64_t on = all->accelerator[cell], *may = all->may + first * all->cells;
        added[2 * count] = first;
        added[2 * count + 1] = cell;
        all->so_far[first] += all->speed[first * all->width + on];
        all->utility[first] = all->next[first * all->width + on];
        all->free[cell] -= all->gang[first];
        may[cell] = 0;
        if (++all->copies[first] >= all->most[first])
            memset(may, 0, all->cells * sizeof *may);
        offer_copies(all, first);
        for (Py_ssize_t job = 0; job < all->jobs; job++) {
            if (all->gang[job] <= all->free[cell])
                continue;
            all->offer[job * all->cells + cell] = 0.0;
            if (all->best[job] == cell)
                note_best(all, job);
        }
    }
    return count;
}

/* fork_copies(terms, speed, gang, most, accelerator, free, may, so_far, utility, added) -> copies;
   the last five change */
static PyObject *fork_copies(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Arguments arguments = {0};
    PyObject *answer = NULL;
    double *room = NULL;
    int64_t *numbers = NULL;
    if (!take_all(&arguments, args, n_args, "ddiiijjeej"))
        goto end;
    const Array *arrays = arguments.arrays;
    Forking all = {
        .terms = arrays[0].view.buf, .speed = arrays[1].view.buf, .gang = arrays[2].view.buf,
        .most = arrays[3].view.buf, .accelerator = arrays[4].view.buf, .free = arrays[5].view.buf,
        .may = arrays[6].view.buf, .so_far = arrays[7].view.buf, .utility = arrays[8].view.buf,
        .jobs = items(&arrays[2]), .cells = items(&arrays[4]),
    };
    all.width = all.jobs ? items(&arrays[1]) / all.jobs : 0;
    if (items(&arrays[0]) != TERMS * all.jobs || items(&arrays[1]) != all.jobs * all.width ||
        items(&arrays[3]) != all.jobs || items(&arrays[5]) != all.cells || !all.cells ||
        items(&arrays[6]) != all.jobs * all.cells || items(&arrays[7]) != all.jobs ||
        items(&arrays[8]) != all.jobs || items(&arrays[9]) % 2 ||
        !all_below(&arrays[4], 0, all.width)) {
        wrong_sizes();
        goto end;
    }
    room = malloc((all.jobs * (all.width + all.cells) + 1) * sizeof *room);
    numbers = malloc((2 * all.jobs + 1) * sizeof *numbers);
    if (!room || !numbers) {
        PyErr_NoMemory();
        goto end;
    }
    all.next = room;
    all.offer = room + all.jobs * all.width;
    all.best = numbers;
    all.copies = numbers + all.jobs;
    answer = PyLong_FromSsize_t(add_copies(&all, arrays[9].view.buf, items(&arrays[9]) / 2));
end:
    free(room);
    free(numbers);
    return give(answer, &arguments);
}

static PyMethodDef methods[] = {
    {"solve_small", (PyCFunction)(void (*)(void))solve_small, METH_FASTCALL, NULL},
    {"balance", (PyCFunction)(void (*)(void))balance, METH_FASTCALL, NULL},
    {"forward", (PyCFunction)(void (*)(void))forward, METH_FASTCALL, NULL},
    {"reallocated", (PyCFunction)(void (*)(void))reallocated, METH_FASTCALL, NULL},
    {"credit", (PyCFunction)(void (*)(void))credit, METH_FASTCALL, NULL},
    {"urgent", (PyCFunction)(void (*)(void))urgent, METH_FASTCALL, NULL},
    {"assign", (PyCFunction)(void (*)(void))assign, METH_FASTCALL, NULL},
    {"fill", (PyCFunction)(void (*)(void))fill, METH_FASTCALL, NULL},
    {"sell_singles", (PyCFunction)(void (*)(void))sell_singles, METH_FASTCALL, NULL},
    {"price_options", (PyCFunction)(void (*)(void))price_options, METH_FASTCALL, NULL},
    {"cheapest_gains", (PyCFunction)(void (*)(void))cheapest_gains, METH_FASTCALL, NULL},
    {"draw_lottery", (PyCFunction)(void (*)(void))draw_lottery, METH_FASTCALL, NULL},
    {"match_singles", (PyCFunction)(void (*)(void))match_singles, METH_FASTCALL, NULL},
    {"choose_pairs", (PyCFunction)(void (*)(void))choose_pairs, METH_FASTCALL, NULL},
    {"stage_use", (PyCFunction)(void (*)(void))stage_use, METH_FASTCALL, NULL},
    {"tied_columns", (PyCFunction)(void (*)(void))tied_columns, METH_FASTCALL, NULL},
    {"next_marginal", (PyCFunction)(void (*)(void))next_marginal, METH_FASTCALL, NULL},
    {"assign_units", (PyCFunction)(void (*)(void))assign_units, METH_FASTCALL, NULL},
    {"pass_ranks", (PyCFunction)(void (*)(void))pass_ranks, METH_FASTCALL, NULL},
    {"device_turns", (PyCFunction)(void (*)(void))device_turns, METH_FASTCALL, NULL},
    {"slice_rounds", (PyCFunction)(void (*)(void))slice_rounds, METH_FASTCALL, NULL},
    {"quantum_rounds", (PyCFunction)(void (*)(void))quantum_rounds, METH_FASTCALL, NULL},
    {"served_tickets", (PyCFunction)(void (*)(void))served_tickets, METH_FASTCALL, NULL},
    {"migration_gains", (PyCFunction)(void (*)(void))migration_gains, METH_FASTCALL, NULL},
    {"fork_copies", (PyCFunction)(void (*)(void))fork_copies, METH_FASTCALL, NULL},
    {"near_pairs", (PyCFunction)(void (*)(void))near_pairs, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", "The inner loops of every round, compiled.", 0,
    methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
