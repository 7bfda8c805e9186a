/* Finds the positions of batches and records without decoding them. */
#include "record_parts.h"

enum { END, SPECIAL, ROOM, CORRUPT };
enum { BATCH_ROW = 3 };

typedef struct {
    const uint8_t *data;
    Py_ssize_t position, end;
    int32_t *batches;
    Py_ssize_t batch_count, batch_capacity;
    columns rows;
    Py_ssize_t row_count, wanted;
    int special, checks_crc;
} batch_scan;

typedef struct {
    int64_t base_offset, base_timestamp, append_time;
    int32_t last_delta;
    int has_append_time;
} batch_times;

/* Fill row `row` with the record at `at` of a batch that ends at `end`; return the record's end, or NULL. */
static const uint8_t *
add_record(batch_scan *scan, Py_ssize_t row, const uint8_t *at, const uint8_t *end, const batch_times *times, int64_t *delta)
{
    columns *rows = &scan->rows;
    const uint8_t *data = scan->data;
    record_parts found;
    if (!locate_record(at, end, &found))
        return NULL;
    rows->offsets[row] = add_wrapping(times->base_offset, found.offset_delta);
    rows->timestamps[row]
        = times->has_append_time ? times->append_time : add_wrapping(times->base_timestamp, found.timestamp_delta);
    rows->starts[row] = (int32_t)(at - data), rows->ends[row] = (int32_t)(found.end - data);
    rows->key_starts[row] = (int32_t)(found.key_start - data), rows->key_sizes[row] = (int32_t)found.key_size;
    rows->value_starts[row] = (int32_t)(found.value_start - data), rows->value_sizes[row] = (int32_t)found.value_size;
    rows->header_starts[row] = (int32_t)(found.headers_start - data);
    *delta = found.offset_delta;
    return found.end;
}

/* Add the records of a complete batch; false if they do not fill it with increasing offsets. */
static int add_records(batch_scan *scan, const uint8_t *batch, Py_ssize_t size, int32_t count)
{
    const uint8_t *at = batch + HEADER_SIZE, *end = batch + size;
    batch_times times = {
        .base_offset = read_i64(batch),
        .base_timestamp = read_i64(batch + BASE_TIMESTAMP_AT),
        .append_time = read_i64(batch + MAX_TIMESTAMP_AT),
        .last_delta = read_i32(batch + LAST_DELTA_AT),
        .has_append_time = batch[ATTRIBUTES_AT + 1] & TIMESTAMP_TYPE_MASK,
    };
    int64_t delta, least = 0;
    for (int32_t i = 0; i < count; i++) {
        at = add_record(scan, scan->row_count + i, at, end, &times, &delta);
        if (at == NULL || delta < least || delta > times.last_delta)
            return 0;
        least = delta + 1;
    }
    return at == end;
}

static int scan_on(batch_scan *scan)
{
    while (scan->end - scan->position >= LOG_OVERHEAD) {
        const uint8_t *batch = scan->data + scan->position;
        int64_t size = (int64_t)read_i32(batch + SIZE_AT) + LOG_OVERHEAD;
        if (size <= MAGIC_AT)
            return CORRUPT;
        if (size > scan->end - scan->position)
            return END;
        if (batch[MAGIC_AT] < 2)
            return SPECIAL;
        if (batch[MAGIC_AT] > 2 || size < HEADER_SIZE)
            return CORRUPT;
        if ((batch[ATTRIBUTES_AT] << 8 | batch[ATTRIBUTES_AT + 1]) & scan->special)
            return SPECIAL;
        int32_t count = read_i32(batch + COUNT_AT);
        if (count < 0 || count > (size - HEADER_SIZE) / MIN_RECORD_SIZE)
            return CORRUPT;
        scan->wanted = count;
        if (scan->batch_count == scan->batch_capacity || count > scan->rows.capacity - scan->row_count)
            return ROOM;
        if (scan->checks_crc && crc32c(batch + ATTRIBUTES_AT, (size_t)size - ATTRIBUTES_AT) != read_u32(batch + CRC_AT))
            return CORRUPT;
        if (!add_records(scan, batch, (Py_ssize_t)size, count))
            return CORRUPT;
        int32_t *row = scan->batches + BATCH_ROW * scan->batch_count++;
        row[0] = (int32_t)scan->position, row[1] = (int32_t)size, row[2] = (int32_t)scan->row_count;
        scan->row_count += count, scan->position += (Py_ssize_t)size;
    }
    return END;
}

PyObject *scan_batches(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, batches, block;
    Py_ssize_t capacity;
    batch_scan scan = {0};
    int reason = CORRUPT;
    if (!PyArg_ParseTuple(args, "y*(nn)w*nw*nnip:scan_batches", &data, &scan.position, &scan.end, &batches,
                          &scan.batch_count, &block, &capacity, &scan.row_count, &scan.special, &scan.checks_crc))
        return NULL;
    scan.data = data.buf, scan.batches = batches.buf, scan.batch_capacity = batches.len / (4 * BATCH_ROW);
    int sound = columns_of(&block, capacity, &scan.rows);
    if (sound && (data.len > INT32_MAX || scan.position < 0 || scan.end > data.len || scan.row_count < 0
                  || scan.row_count > capacity || scan.batch_count < 0 || scan.batch_count > scan.batch_capacity)) {
        PyErr_SetString(PyExc_ValueError, "no such part of a buffer, or no such rows");
        sound = 0;
    }
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        reason = scan_on(&scan);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data), PyBuffer_Release(&batches), PyBuffer_Release(&block);
    if (!sound)
        return NULL;
    return Py_BuildValue("ninnn", scan.position, reason, scan.batch_count, scan.row_count, scan.wanted);
}

typedef struct {
    int64_t size, base_offset, last_offset, max_timestamp;
} batch_front;

/* Return false if no whole batch of any format begins at `at`. */
static int read_front(const uint8_t *at, Py_ssize_t left, batch_front *front)
{
    enum { V1_TIMESTAMP_AT = 18 };
    static const int least_sizes[] = {26, 34, HEADER_SIZE}; /* by magic */
    if (left < least_sizes[0])
        return 0;
    int magic = at[MAGIC_AT];
    front->size = (int64_t)read_i32(at + SIZE_AT) + LOG_OVERHEAD;
    if (magic > 2 || front->size < least_sizes[magic] || front->size > left)
        return 0;
    front->base_offset = front->last_offset = read_i64(at);
    if (magic == 2) {
        front->last_offset = add_wrapping(front->last_offset, read_i32(at + LAST_DELTA_AT));
        front->max_timestamp = read_i64(at + MAX_TIMESTAMP_AT);
    } else {
        front->max_timestamp = magic ? read_i64(at + V1_TIMESTAMP_AT) : -1;
    }
    return 1;
}

PyObject *index_batches(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    long long since, interval, timestamp, timestamp_offset, last_offset;
    Py_ssize_t position = 0;
    batch_front front;
    if (!PyArg_ParseTuple(args, "y*LL(LL)L:index_batches", &data, &since, &interval, &timestamp, &timestamp_offset,
                          &last_offset))
        return NULL;
    PyObject *entries = PyList_New(0);
    while (entries != NULL && read_front((const uint8_t *)data.buf + position, data.len - position, &front)) {
        if (front.base_offset <= last_offset || front.last_offset < front.base_offset)
            break;
        last_offset = front.last_offset;
        if (front.max_timestamp > timestamp)
            timestamp = front.max_timestamp, timestamp_offset = last_offset;
        if (since > interval) {
            PyObject *entry = Py_BuildValue("LnLL", last_offset, position, timestamp, timestamp_offset);
            if (entry == NULL || PyList_Append(entries, entry) < 0)
                Py_CLEAR(entries);
            Py_XDECREF(entry);
            since = 0;
        }
        since += front.size, position += (Py_ssize_t)front.size;
    }
    PyBuffer_Release(&data);
    if (entries == NULL)
        return NULL;
    return Py_BuildValue("nNL(LL)L", position, entries, since, timestamp, timestamp_offset, last_offset);
}

/* The batches of a leader that continue a log, from the start of `data` on. */
typedef struct {
    const uint8_t *data;
    int64_t next_offset, leader_epoch, first_offset, last_offset, offset_count, max_timestamp, last_epoch;
    PyObject *producers, *epochs;
} replicated;

/* Append a new object to a list; false with an exception. */
static int append_new(PyObject *list, PyObject *made)
{
    int is_added = made != NULL && PyList_Append(list, made) == 0;
    Py_XDECREF(made);
    return is_added;
}

/* Return whether the whole batch of format v2 at `at` continues the log. */
static int continues_log(const replicated *all, const uint8_t *at, const batch_front *front)
{
    int32_t epoch = read_i32(at + LEADER_EPOCH_AT);
    return !(all->leader_epoch >= 0 && epoch > all->leader_epoch) && front->base_offset >= all->next_offset
        && front->last_offset >= front->base_offset && front->last_offset < INT64_MAX
        && read_u32(at + CRC_AT) == crc32c(at + ATTRIBUTES_AT, (size_t)front->size - ATTRIBUTES_AT);
}

/* Add a batch that continues the log; false with an exception. */
static int add_replicated(replicated *all, const uint8_t *at, const batch_front *front)
{
    int32_t epoch = read_i32(at + LEADER_EPOCH_AT);
    if (epoch >= 0 && epoch != all->last_epoch) {
        if (!append_new(all->epochs, Py_BuildValue("iL", (int)epoch, (long long)front->base_offset)))
            return 0;
        all->last_epoch = epoch;
    }
    if (read_i64(at + PRODUCER_ID_AT) >= 0 && !append_new(all->producers, PyLong_FromSsize_t(at - all->data)))
        return 0;
    if (all->first_offset < 0)
        all->first_offset = front->base_offset;
    if (front->max_timestamp > all->max_timestamp)
        all->max_timestamp = front->max_timestamp;
    all->offset_count += front->last_offset - front->base_offset + 1;
    all->last_offset = front->last_offset, all->next_offset = front->last_offset + 1;
    return 1;
}

PyObject *check_replicated_batches(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    batch_front front;
    replicated all = {.first_offset = -1, .last_offset = -1, .max_timestamp = NO_TIMESTAMP, .last_epoch = -1};
    long long next_offset, leader_epoch;
    Py_ssize_t position = 0;
    if (!PyArg_ParseTuple(args, "y*LL:check_replicated_batches", &data, &next_offset, &leader_epoch))
        return NULL;
    all.data = data.buf, all.next_offset = next_offset, all.leader_epoch = leader_epoch;
    all.producers = PyList_New(0), all.epochs = PyList_New(0);
    int is_sound = all.producers != NULL && all.epochs != NULL;
    while (is_sound && data.len - position >= HEADER_SIZE) {
        const uint8_t *at = all.data + position;
        if (at[MAGIC_AT] != 2 || !read_front(at, data.len - position, &front) || !continues_log(&all, at, &front))
            break;
        is_sound = add_replicated(&all, at, &front);
        position += (Py_ssize_t)front.size;
    }
    PyBuffer_Release(&data);
    PyObject *found = is_sound ? Py_BuildValue("nLLLLOO", position, (long long)all.first_offset,
                                               (long long)all.last_offset, (long long)all.offset_count,
                                               (long long)all.max_timestamp, all.producers, all.epochs)
                               : NULL;
    Py_XDECREF(all.producers), Py_XDECREF(all.epochs);
    return found;
}
