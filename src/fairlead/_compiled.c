/* What every round does, compiled: the same as the Python beside it, bit for bit.

   `forward` is Account.brought_forward, `urgent` is shares.urgent, and `assign` is Choice.assign
   with its Exchange. Read those first: they say why; this file only says it in C. Arrays are
   numpy's, of doubles or 64-bit integers, row by row; sums are made in the same order. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1, BUSY = -2, NOBODY = -1 };
enum { SHARE, OWED, CARRIED, RECEIVED, TABLES };
enum { MOST_EXCHANGES = 64, SOON = 24 };

static const double LEAST = 1e-9;

/* An argument that is an array. */
typedef struct {
    Py_buffer view;
    int open;
} Array;

/* What an array is to be: its rows may lie apart, or it is whole, or it is whole and changed. */
enum { ROWS = PyBUF_STRIDES, WHOLE = PyBUF_C_CONTIGUOUS, OUT = WHOLE | PyBUF_WRITABLE };

static int take(PyObject *given, Array *array, char kind, int form)
{
    if (PyObject_GetBuffer(given, &array->view, form | PyBUF_FORMAT) < 0)
        return 0;
    array->open = 1;
    const char *format = array->view.format;
    int fits = kind == 'd' ? !strcmp(format, "d") : !strcmp(format, "l") || !strcmp(format, "q");
    if (!fits || array->view.itemsize != 8 || array->view.ndim < 1) {
        PyErr_SetString(PyExc_TypeError, "an array of doubles or of 64-bit integers is needed");
        return 0;
    }
    return 1;
}

static void let_go(Array *arrays, int count)
{
    for (int i = 0; i < count; i++)
        if (arrays[i].open)
            PyBuffer_Release(&arrays[i].view);
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

static int arguments(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given != wanted)
        PyErr_Format(PyExc_TypeError, "%zd arguments are needed, not %zd", wanted, given);
    return given == wanted;
}

/* -- the account ---------------------------------------------------------------------------- */

/* forward(job, tables, elapsed_s, new_job, new_received, new_tables): both lists of jobs ascend */
static PyObject *forward(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Array arrays[5] = {0};
    PyObject *answer = NULL;
    if (!arguments(n_args, 6))
        return NULL;
    double elapsed_s = PyFloat_AsDouble(args[2]);
    if (PyErr_Occurred() || !take(args[0], &arrays[0], 'l', WHOLE) ||
        !take(args[1], &arrays[1], 'd', WHOLE) || !take(args[3], &arrays[2], 'l', WHOLE) ||
        !take(args[4], &arrays[3], 'd', ROWS) || !take(args[5], &arrays[4], 'd', OUT))
        goto end;
    const int64_t *before = arrays[0].view.buf, *now = arrays[2].view.buf;
    const double *old = arrays[1].view.buf;
    double *new = arrays[4].view.buf;
    Py_ssize_t n_before = items(&arrays[0]), n_now = items(&arrays[2]);
    Py_ssize_t width = n_now ? items(&arrays[3]) / n_now : 0;
    Py_ssize_t size = n_now * width, old_size = items(&arrays[1]) / TABLES;
    if (arrays[3].view.ndim != 2 || (width > 1 && arrays[3].view.strides[1] != 8) ||
        items(&arrays[3]) != size || items(&arrays[4]) != TABLES * size ||
        (n_before && n_now && old_size != n_before * width)) {
        wrong_sizes();
        goto end;
    }
    Py_ssize_t from = 0;
    for (Py_ssize_t i = 0; i < n_now; i++) {
        while (from < n_before && before[from] < now[i])
            from++;
        const double *received = row_of(&arrays[3], i);
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
    let_go(arrays, 5);
    return answer;
}

/* -- who may run ------------------------------------------------------------------------------ */

/* urgent(tables, rows, round_s, soon, somewhere, on, stay, row, column, weight) -> how many.
   What is found is written to the last three, which have room for one entry a row and column. */
static PyObject *urgent(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Array arrays[6] = {0};
    PyObject *answer = NULL;
    if (!arguments(n_args, 10))
        return NULL;
    Py_ssize_t rows = PyLong_AsSsize_t(args[1]);
    double round_s = PyFloat_AsDouble(args[2]), somewhere = PyFloat_AsDouble(args[4]);
    double stay = PyFloat_AsDouble(args[6]);
    int stays = args[5] != Py_None;
    if (PyErr_Occurred() || !take(args[0], &arrays[0], 'd', WHOLE) ||
        !take(args[3], &arrays[1], 'd', WHOLE) ||
        (stays && !take(args[5], &arrays[2], 'l', ROWS)) ||
        !take(args[7], &arrays[3], 'l', OUT) || !take(args[8], &arrays[4], 'l', OUT) ||
        !take(args[9], &arrays[5], 'd', OUT))
        goto end;
    const double *tables = arrays[0].view.buf, *soon = arrays[1].view.buf;
    int64_t *row = arrays[3].view.buf, *column = arrays[4].view.buf;
    double *weight = arrays[5].view.buf;
    Py_ssize_t size = items(&arrays[5]), width = rows > 0 ? size / rows : 0;
    if (rows < 0 || rows * width != size || items(&arrays[0]) < (CARRIED + 1) * size ||
        items(&arrays[1]) != SOON || (stays && items(&arrays[2]) != rows) ||
        items(&arrays[3]) != size || items(&arrays[4]) != size) {
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
            if (stays && *(const int64_t *)row_of(&arrays[2], i) == column[e])
                weight[e] += stay;
        }
    }
    answer = PyLong_FromSsize_t(count);
end:
    let_go(arrays, 6);
    return answer;
}

/* -- who runs --------------------------------------------------------------------------------- */

typedef struct {
    double weight;
    int64_t row, column;
    Py_ssize_t place; /* where it was given */
} Entry;

/* Who moves from one node to another if anybody does: the row that gains most. */
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

static int heavier(const void *one, const void *other)
{
    const Entry *a = one, *b = other;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
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

/* Gavel's Algorithm 1; tell whether exchanges could use what is left. */
static int pick(Choice *choice)
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
    if (choice->width == 1 || count == choice->n_entries || !any_free(choice))
        return 0;
    for (Py_ssize_t e = 0; e < choice->n_entries; e++) {
        int64_t row = choice->entries[e].row;
        if (choice->chosen[row] == NONE && !is_fixed(choice, row))
            return 1;
    }
    return 0;
}

/* Begin with who is where. */
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
    int64_t *came_from = path, *from = path + nodes, *to = from + nodes, *who = to + nodes;
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
        who[length++] = choice->best[before * nodes + at].row;
    }
    for (Py_ssize_t step = 0; step < length; step++)
        move(choice, from[step], to[step], who[step]);
    return 1;
}

/* Exchange rows while a column has room and that adds weight. */
static int exchange(Choice *choice)
{
    Py_ssize_t nodes = choice->width + 1;
    int64_t *path = malloc(4 * nodes * sizeof *path);
    double *best = malloc(nodes * sizeof *best);
    int well = path && best && begin(choice);
    for (int turn = 0; well && turn < MOST_EXCHANGES && any_free(choice); turn++)
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
    choice->entries = malloc((count + 1) * sizeof(Entry));
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
        choice->entries[choice->n_entries++] = (Entry){its_weight, i, j, e};
    }
    qsort(choice->entries, choice->n_entries, sizeof(Entry), heavier);
    return 1;
}

/* assign(row, column, weight, gang, free, chosen): the last two are lists, and change */
static PyObject *assign(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    Array arrays[4] = {0};
    Choice choice = {0};
    PyObject *answer = NULL;
    if (!arguments(n_args, 6))
        return NULL;
    if (!take(args[0], &arrays[0], 'l', ROWS) || !take(args[1], &arrays[1], 'l', ROWS) ||
        !take(args[2], &arrays[2], 'd', ROWS) ||
        (args[3] != Py_None && !take(args[3], &arrays[3], 'l', WHOLE)))
        goto end;
    if (!PyList_Check(args[4]) || !PyList_Check(args[5])) {
        PyErr_SetString(PyExc_TypeError, "what is free and what is chosen are lists");
        goto end;
    }
    choice.width = PyList_Size(args[4]);
    choice.rows = PyList_Size(args[5]);
    if (arrays[3].open) {
        choice.gang = arrays[3].view.buf;
        choice.gang_width = arrays[3].view.ndim == 1 ? 1 : arrays[3].view.shape[1];
    }
    if (items(&arrays[1]) != items(&arrays[0]) || items(&arrays[2]) != items(&arrays[0]) ||
        (choice.gang && (items(&arrays[3]) != choice.rows * choice.gang_width ||
                         (choice.gang_width != 1 && choice.gang_width != choice.width)))) {
        wrong_sizes();
        goto end;
    }
    if (!(choice.free = numbers_of(args[4], choice.width)) ||
        !(choice.chosen = numbers_of(args[5], choice.rows)) ||
        !take_in(&choice, &arrays[0], &arrays[1], &arrays[2]))
        goto end;
    for (Py_ssize_t i = 0; i < choice.rows; i++)
        if (choice.chosen[i] >= choice.width) {
            wrong_sizes();
            goto end;
        }
    if (pick(&choice) && !exchange(&choice)) {
        PyErr_NoMemory();
        goto end;
    }
    if (write_back(args[4], choice.free, choice.width) &&
        write_back(args[5], choice.chosen, choice.rows))
        answer = Py_NewRef(Py_None);
end:
    let_go(arrays, 4);
    free(choice.entries);
    free(choice.chosen);
    free(choice.free);
    free(choice.where);
    free(choice.moved);
    free(choice.changed);
    free(choice.worth);
    free(choice.best);
    return answer;
}

static PyMethodDef methods[] = {
    {"forward", (PyCFunction)(void (*)(void))forward, METH_FASTCALL, NULL},
    {"urgent", (PyCFunction)(void (*)(void))urgent, METH_FASTCALL, NULL},
    {"assign", (PyCFunction)(void (*)(void))assign, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", "What every round does, compiled.", 0,
    methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
