/* Writes the retained parts of batches for the cleaner, one after the other. */
#include "record_parts.h"

typedef struct {
    const uint8_t *data;
    const int32_t *batches;
    Py_ssize_t batch_count, row_count;
    columns rows;
    const int64_t *found, *keep_empty;
    Py_ssize_t keep_empty_count;
    int64_t latest_offset, now_ms, new_horizon_ms;
    uint8_t *output;
    Py_ssize_t at, room;
    long long messages, invalid;
} filter_run;

typedef struct {
    const uint8_t *bytes;
    Py_ssize_t size, first, end;
    int64_t horizon;
    int has_horizon;
} batch_part;

static inline int stays(const filter_run *run, const batch_part *batch, Py_ssize_t row)
{
    int64_t offset = run->rows.offsets[row];
    if (offset > run->latest_offset)
        return 1;
    if (run->rows.key_sizes[row] < 0 || offset < run->found[row])
        return 0;
    return run->rows.value_sizes[row] >= 0 || !batch->has_horizon || run->now_ms < batch->horizon;
}

static int is_kept_empty(const filter_run *run, int64_t last_offset)
{
    Py_ssize_t low = 0, high = run->keep_empty_count;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (run->keep_empty[middle] < last_offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < run->keep_empty_count && run->keep_empty[low] == last_offset;
}

/* Append bytes; false if there is no room, although the caller has reserved it. */
static int append(filter_run *run, const uint8_t *bytes, Py_ssize_t size)
{
    if (size > run->room - run->at)
        return 0;
    memcpy(run->output + run->at, bytes, (size_t)size);
    run->at += size;
    return 1;
}

/* Append a record with its timestamp delta increased by `shift`; false if it is invalid. */
static int append_shifted(filter_run *run, const uint8_t *at, const uint8_t *limit, int64_t shift)
{
    const uint8_t *attributes, *end;
    int64_t stamp;
    uint8_t length[LONGEST_VARLONG], front[1 + LONGEST_VARLONG];
    const uint8_t *rest = locate_front(at, limit, &attributes, &stamp, &end);
    if (rest == NULL)
        return 0;
    front[0] = *attributes;
    Py_ssize_t front_size = write_varlong(front + 1, add_wrapping(stamp, shift)) - front;
    Py_ssize_t length_size = write_varlong(length, front_size + (end - rest)) - length;
    return append(run, length, length_size) && append(run, front, front_size) && append(run, rest, end - rest);
}

/* Update size, count and CRC of the batch that begins at `start` in the output. */
static void complete(filter_run *run, Py_ssize_t start, Py_ssize_t count)
{
    uint8_t *batch = run->output + start;
    write_u32(batch + SIZE_AT, (uint32_t)(run->at - start - LOG_OVERHEAD));
    write_u32(batch + COUNT_AT, (uint32_t)count);
    write_u32(batch + CRC_AT, crc32c(batch + ATTRIBUTES_AT, (size_t)(run->at - start) - ATTRIBUTES_AT));
}

static int write_empty(filter_run *run, const batch_part *batch)
{
    Py_ssize_t start = run->at;
    if (!is_kept_empty(run, add_wrapping(read_i64(batch->bytes), read_i32(batch->bytes + LAST_DELTA_AT))))
        return 1;
    if (!append(run, batch->bytes, HEADER_SIZE))
        return 0;
    run->output[start + ATTRIBUTES_AT + 1] &= (uint8_t) ~(CODEC_MASK | DELETE_HORIZON_MASK);
    write_i64(run->output + start + BASE_TIMESTAMP_AT, -1);
    complete(run, start, 0);
    return 1;
}

/* Write the batch with fewer records, or with a new delete horizon. */
static int write_part(filter_run *run, const batch_part *batch, Py_ssize_t count, int sets_horizon)
{
    Py_ssize_t start = run->at;
    int64_t shift = (int64_t)((uint64_t)read_i64(batch->bytes + BASE_TIMESTAMP_AT) - (uint64_t)run->new_horizon_ms);
    int64_t highest = -1;
    const columns *rows = &run->rows;
    if (!append(run, batch->bytes, HEADER_SIZE))
        return 0;
    for (Py_ssize_t row = batch->first; row < batch->end;) {
        if (!stays(run, batch, row)) {
            row++;
            continue;
        }
        Py_ssize_t first = row;
        for (; row < batch->end && stays(run, batch, row); row++) {
            highest = rows->timestamps[row] > highest ? rows->timestamps[row] : highest;
            if (sets_horizon && !append_shifted(run, run->data + rows->starts[row], run->data + rows->ends[row], shift))
                return 0;
        }
        if (!sets_horizon && !append(run, run->data + rows->starts[first], rows->ends[row - 1] - rows->starts[first]))
            return 0;
    }
    uint8_t *header = run->output + start;
    if (sets_horizon) {
        header[ATTRIBUTES_AT + 1] |= DELETE_HORIZON_MASK;
        write_i64(header + BASE_TIMESTAMP_AT, run->new_horizon_ms);
    }
    if (!(header[ATTRIBUTES_AT + 1] & TIMESTAMP_TYPE_MASK))
        write_i64(header + MAX_TIMESTAMP_AT, highest);
    complete(run, start, count);
    return 1;
}

static int filter_batch(filter_run *run, batch_part *batch)
{
    Py_ssize_t kept = 0, tombstones = 0;
    batch->has_horizon = batch->bytes[ATTRIBUTES_AT + 1] & DELETE_HORIZON_MASK;
    batch->horizon = read_i64(batch->bytes + BASE_TIMESTAMP_AT);
    for (Py_ssize_t row = batch->first; row < batch->end; row++) {
        int keeps = stays(run, batch, row);
        kept += keeps;
        tombstones += keeps && run->rows.value_sizes[row] < 0;
        run->invalid += !keeps && run->rows.key_sizes[row] < 0;
    }
    run->messages += kept;
    if (!kept)
        return write_empty(run, batch);
    int sets_horizon = tombstones && !batch->has_horizon;
    if (kept == batch->end - batch->first && !sets_horizon)
        return append(run, batch->bytes, batch->size);
    return write_part(run, batch, kept, sets_horizon);
}

/* Return false if rows exceed their batches, batches exceed the buffer, or the output has no room. */
static int filter_all(filter_run *run, Py_ssize_t data_size)
{
    for (Py_ssize_t i = 0; i < run->batch_count; i++) {
        const int32_t *row = run->batches + 3 * i;
        batch_part batch = {.bytes = run->data + row[0], .size = row[1], .first = row[2]};
        batch.end = i + 1 < run->batch_count ? row[5] : run->row_count;
        if (row[0] < 0 || row[1] < HEADER_SIZE || row[1] > data_size - row[0] || batch.first < 0
            || batch.first > batch.end || batch.end > run->row_count)
            return 0;
        for (Py_ssize_t at = batch.first; at < batch.end; at++)
            if (run->rows.starts[at] < row[0] || run->rows.ends[at] < run->rows.starts[at]
                || run->rows.ends[at] > row[0] + row[1]
                || (at > batch.first && run->rows.starts[at] != run->rows.ends[at - 1]))
                return 0;
        if (!filter_batch(run, &batch))
            return 0;
    }
    return 1;
}

PyObject *filter_batches(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, batches, block, found, keep_empty, output;
    Py_ssize_t capacity, first;
    long long latest_offset, now_ms, new_horizon_ms;
    filter_run run = {0};
    int done = 0;
    if (!PyArg_ParseTuple(args, "y*y*n(w*nnn)y*(LLL)y*w*n:filter_batches", &data, &batches, &run.batch_count, &block,
                          &capacity, &first, &run.row_count, &found, &latest_offset, &now_ms, &new_horizon_ms,
                          &keep_empty, &output, &run.at))
        return NULL;
    run.data = data.buf, run.batches = batches.buf, run.found = found.buf;
    run.latest_offset = latest_offset, run.now_ms = now_ms, run.new_horizon_ms = new_horizon_ms;
    run.keep_empty = keep_empty.buf, run.keep_empty_count = keep_empty.len / 8;
    run.output = output.buf, run.room = output.len;
    int sound = columns_of(&block, capacity, &run.rows) && run.row_count >= 0 && run.row_count <= capacity
        && run.row_count <= found.len / 8 && run.batch_count >= 0 && run.batch_count <= batches.len / 12 && run.at >= 0
        && run.at <= run.room;
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        done = filter_all(&run, data.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data), PyBuffer_Release(&batches), PyBuffer_Release(&block);
    PyBuffer_Release(&found), PyBuffer_Release(&keep_empty), PyBuffer_Release(&output);
    if (!done) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "rows and batches do not fit together, or the output has no room");
        return NULL;
    }
    return Py_BuildValue("nLL", run.at, run.messages, run.invalid);
}
