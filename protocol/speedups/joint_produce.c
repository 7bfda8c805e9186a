/* Small produce requests of many connections to one partition: their batches are checked in one call, and copied into
 * one run of bytes, which is appended with one write. The twins are in joint_produce.py. */
#include "produce_parts.h"

typedef struct {
    int version, acks, index, timeout_ms, correlation_id;
    const uint8_t *topic, *records, *end; /* `end` is the end of the frame */
    int64_t topic_size, records_size;
} small_produce;

static int is_ascii(const uint8_t *at, int64_t size)
{
    uint8_t bits = 0;
    for (int64_t i = 0; at != NULL && i < size; i++)
        bits |= at[i];
    return bits < 0x80;
}

enum { MAX_BATCH_SIZE = 1 << 14 }; /* as MAX_JOINT_BATCH_BYTES */

/* Return whether the header of a batch permits the join. The records are checked later. */
static int may_be_joined(const uint8_t *batch, int64_t size)
{
    return size > HEADER_SIZE && size <= MAX_BATCH_SIZE && batch[MAGIC_AT] == 2
        && !(batch[ATTRIBUTES_AT + 1] & (CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK));
}

/* Return whether a whole frame begins at `at` that is a produce request for one partition, without a transactional id
 * and tags, and with a batch that may be joined. Other requests, invalid ones as well, are left to the general decoder. */
static int read_small_produce(const uint8_t *at, const uint8_t *end, small_produce *out)
{
    if (end - at < 4)
        return 0;
    int64_t size = read_i32(at);
    if (size < 0 || size > end - at - 4)
        return 0;
    reader in = {at + 4, at + 4 + size, 0};
    int key = take_i16(&in);
    out->version = take_i16(&in), out->correlation_id = take_i32(&in), out->end = in.end;
    int64_t client_id_size = take_i16(&in);
    if (in.at == NULL || key != 0 || out->version < SINCE_TRANSACTIONS || out->version > SINCE_TOPIC_IDS)
        return 0;
    if (client_id_size != -1 && !is_ascii(take(&in, client_id_size), client_id_size))
        return 0;
    in.is_flexible = out->version >= SINCE_FLEXIBLE;
    take_no_tags(&in);
    if (take_count(&in, 2) != -1)
        return 0;
    out->acks = take_i16(&in), out->timeout_ms = take_i32(&in);
    if (take_count(&in, 4) != 1)
        return 0;
    int is_id = out->version >= SINCE_TOPIC_IDS;
    out->topic_size = is_id ? UUID_SIZE : take_count(&in, 2);
    if (out->topic_size > INT16_MAX || (out->topic = take(&in, out->topic_size)) == NULL
        || (!is_id && !is_ascii(out->topic, out->topic_size)) || take_count(&in, 4) != 1)
        return 0;
    out->index = take_i32(&in);
    out->records_size = take_count(&in, 4);
    out->records = take(&in, out->records_size);
    take_no_tags(&in), take_no_tags(&in), take_no_tags(&in); /* of the partition, the topic, the request */
    return in.at != NULL && in.at == in.end && may_be_joined(out->records, out->records_size);
}

enum { KEY_FRONT = 12 };

/* Write version, acks, index and timeout, the beginning of the key of a group. The topic follows. */
static void write_key_front(uint8_t *at, const small_produce *request)
{
    at[0] = (uint8_t)(request->version >> 8), at[1] = (uint8_t)request->version;
    at[2] = (uint8_t)((uint32_t)request->acks >> 8), at[3] = (uint8_t)request->acks;
    write_u32(at + 4, (uint32_t)request->index), write_u32(at + 8, (uint32_t)request->timeout_ms);
}

static int has_key(const small_produce *request, const uint8_t *key, Py_ssize_t key_size)
{
    uint8_t front[KEY_FRONT];
    write_key_front(front, request);
    return key_size == KEY_FRONT + request->topic_size && memcmp(front, key, KEY_FRONT) == 0
        && memcmp(request->topic, key + KEY_FRONT, (size_t)request->topic_size) == 0;
}

/* Get the part (start, end) of `data` at `index`. Returns false with ValueError for an invalid part. */
static int part_at(PyObject *parts, Py_ssize_t index, const Py_buffer *data, const uint8_t **start, const uint8_t **end)
{
    PyObject *part = PyList_GetItem(parts, index);
    Py_ssize_t first = -1, last = -1;
    if (part != NULL && PyTuple_Check(part) && PyTuple_Size(part) == 2) {
        PyObject *begin = PyTuple_GetItem(part, 0), *behind = PyTuple_GetItem(part, 1);
        /* Only ints: __index__ of another type could change the list. */
        if (PyLong_CheckExact(begin) && PyLong_CheckExact(behind))
            first = PyLong_AsSsize_t(begin), last = PyLong_AsSsize_t(behind);
    }
    if (first < 0 || first > last || last > data->len) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such part of the buffer");
        return 0;
    }
    *start = (const uint8_t *)data->buf + first, *end = (const uint8_t *)data->buf + last;
    return 1;
}

static int add_to_group(PyObject *groups, const small_produce *request, Py_ssize_t number)
{
    PyObject *key = PyBytes_FromStringAndSize(NULL, KEY_FRONT + (Py_ssize_t)request->topic_size);
    PyObject *index = key == NULL ? NULL : PyLong_FromSsize_t(number);
    int is_added = 0;
    if (index != NULL) {
        uint8_t *at = (uint8_t *)PyBytes_AsString(key);
        write_key_front(at, request);
        memcpy(at + KEY_FRONT, request->topic, (size_t)request->topic_size);
        PyObject *group = PyDict_GetItemWithError(groups, key);
        if (group != NULL) {
            is_added = PyList_Append(group, index) == 0;
        } else if (!PyErr_Occurred() && (group = PyList_New(0)) != NULL) {
            is_added = PyList_Append(group, index) == 0 && PyDict_SetItem(groups, key, group) == 0;
            Py_DECREF(group);
        }
    }
    Py_XDECREF(key), Py_XDECREF(index);
    return is_added;
}

PyObject *group_produce_requests(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer data;
    if (count != 2 || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "group_produce_requests(buffer, parts)");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *groups = PyDict_New();
    const uint8_t *start, *end;
    small_produce request;
    for (Py_ssize_t i = 0; groups != NULL && i < PyList_Size(args[1]); i++)
        if (!part_at(args[1], i, &data, &start, &end)
            || (read_small_produce(start, end, &request) && !add_to_group(groups, &request, i)))
            Py_CLEAR(groups);
    PyBuffer_Release(&data);
    return groups;
}

/* The joined batches, the responses to them, and the memory for both. The responses of one call differ only in their
 * correlation id and base offset, so each is a copy of `response` with these two numbers. */
typedef struct {
    const uint8_t *key;
    Py_ssize_t key_size;
    const record_rules *rules;
    PyObject *accept;
    int64_t max_size, next_offset, max_timestamp;
    Py_ssize_t most; /* requests of a part */
    uint32_t leader_epoch;
    uint8_t *data, *responses;
    Py_ssize_t data_size, responses_size;
    uint8_t *response;
    Py_ssize_t response_size, offset_at;
} join;

/* Write `response`, or only set its size while it has no memory. */
static void write_response(join *all, int version, int64_t log_start_offset)
{
    writer out = {.at = all->response, .room = all->response_size, .version = version};
    put_number(&out, all->response_size - 4, 4), put_number(&out, 0, 4), put_no_tags(&out);
    put_count(&out, 1, 4);
    if (version < SINCE_TOPIC_IDS)
        put_count(&out, all->key_size - KEY_FRONT, 2);
    put_bytes(&out, all->key + KEY_FRONT, all->key_size - KEY_FRONT);
    put_count(&out, 1, 4);
    put_bytes(&out, all->key + 4, 4), put_number(&out, 0, 2);
    all->offset_at = out.size;
    put_number(&out, 0, 8), put_number(&out, NO_TIMESTAMP, 8);
    if (version >= SINCE_LOG_START)
        put_number(&out, log_start_offset, 8);
    if (version >= SINCE_RECORD_ERRORS)
        put_count(&out, 0, 4), put_count(&out, -1, 2);
    put_no_tags(&out), put_no_tags(&out);
    put_number(&out, 0, 4); /* no throttle time */
    put_no_tags(&out);
    all->response_size = out.size;
}

/* Return whether the request belongs to the group and has a batch that can be appended as it is. */
static int is_joinable(const join *all, const small_produce *request)
{
    return has_key(request, all->key, all->key_size) && request->records_size <= all->max_size
        && check_batch(request->records, request->records_size, NULL, all->rules);
}

/* Return 1 if the batch, which has its offset, has no producer id or is accepted; otherwise 0, or -1 with an exception. */
static int is_accepted(const join *all, const uint8_t *batch)
{
    if (read_i64(batch + PRODUCER_ID_AT) < 0)
        return 1;
    PyObject *header = PyBytes_FromStringAndSize((const char *)batch, HEADER_SIZE);
    PyObject *answer = header == NULL ? NULL : PyObject_CallFunctionObjArgs(all->accept, header, NULL);
    int accepted = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(header), Py_XDECREF(answer);
    return accepted;
}

/* Join the requests from `at` on. Returns the end of the last one, or NULL with an exception. */
static const uint8_t *join_part(join *all, const uint8_t *at, const uint8_t *end)
{
    small_produce request;
    for (Py_ssize_t i = 0; i < all->most && read_small_produce(at, end, &request) && is_joinable(all, &request); i++) {
        uint8_t *batch = all->data + all->data_size, *response = all->responses + all->responses_size;
        memcpy(batch, request.records, (size_t)request.records_size);
        write_i64(batch, all->next_offset), write_u32(batch + LEADER_EPOCH_AT, all->leader_epoch);
        int accepted = is_accepted(all, batch);
        if (accepted < 0)
            return NULL;
        if (!accepted)
            break;
        memcpy(response, all->response, (size_t)all->response_size);
        write_u32(response + 4, (uint32_t)request.correlation_id);
        write_i64(response + all->offset_at, all->next_offset);
        int64_t timestamp = read_i64(batch + MAX_TIMESTAMP_AT);
        all->max_timestamp = timestamp > all->max_timestamp ? timestamp : all->max_timestamp;
        all->next_offset += read_i32(batch + COUNT_AT);
        all->data_size += (Py_ssize_t)request.records_size, all->responses_size += all->response_size;
        at = request.end;
    }
    return at;
}

/* Allocate memory for the largest number of requests in the parts, each larger than a batch header. Returns false with
 * an exception. */
static int take_memory(join *all, PyObject *parts, const Py_buffer *data, int64_t log_start_offset)
{
    Py_ssize_t bytes = 0, requests = 0;
    const uint8_t *start, *end;
    for (Py_ssize_t i = 0; i < PyList_Size(parts); i++) {
        if (!part_at(parts, i, data, &start, &end))
            return 0;
        bytes += end - start, requests += (end - start) / HEADER_SIZE;
    }
    int version = all->key[0] << 8 | all->key[1];
    write_response(all, version, log_start_offset); /* counts */
    if (requests > PY_SSIZE_T_MAX / 2 / (all->response_size + 1)) {
        PyErr_NoMemory();
        return 0;
    }
    all->data = PyMem_Malloc((size_t)bytes + (size_t)((requests + 1) * all->response_size));
    if (all->data == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    all->response = all->data + bytes, all->responses = all->response + all->response_size;
    write_response(all, version, log_start_offset);
    return 1;
}

/* Return (joined batches, record count, largest timestamp, ends, responses); ends and responses are lists by part. */
static PyObject *join_parts(join *all, PyObject *parts, const Py_buffer *data)
{
    PyObject *ends = PyList_New(0), *responses = PyList_New(0), *joined = NULL;
    int64_t first_offset = all->next_offset;
    int is_done = ends != NULL && responses != NULL;
    for (Py_ssize_t i = 0; is_done && i < PyList_Size(parts); i++) {
        const uint8_t *start, *end;
        Py_ssize_t size = all->responses_size;
        if (!part_at(parts, i, data, &start, &end)) {
            is_done = 0;
            break;
        }
        if ((end = join_part(all, start, end)) == NULL) {
            is_done = 0;
            break;
        }
        PyObject *position = PyLong_FromSsize_t(end - (const uint8_t *)data->buf);
        PyObject *response = PyBytes_FromStringAndSize((const char *)all->responses + size, all->responses_size - size);
        is_done = position != NULL && response != NULL && PyList_Append(ends, position) == 0
            && PyList_Append(responses, response) == 0;
        Py_XDECREF(position), Py_XDECREF(response);
    }
    if (is_done)
        joined = Py_BuildValue("y#LLOO", (const char *)all->data, all->data_size,
                               (long long)(all->next_offset - first_offset), (long long)all->max_timestamp, ends, responses);
    Py_XDECREF(ends), Py_XDECREF(responses);
    return joined;
}

PyObject *join_accepted_produces(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    PyObject *parts, *tuple, *joined = NULL;
    const char *key;
    long long base_offset, leader_epoch, max_size, log_start_offset;
    record_rules rules;
    join all = {.rules = &rules, .max_timestamp = NO_TIMESTAMP};
    if (!PyArg_ParseTuple(args, "y*O!y#(LL)(LLn)OO:join_accepted_produces", &data, &PyList_Type, &parts, &key,
                          &all.key_size, &base_offset, &leader_epoch, &max_size, &log_start_offset, &all.most, &tuple,
                          &all.accept))
        return NULL;
    all.key = (const uint8_t *)key;
    all.next_offset = base_offset, all.leader_epoch = (uint32_t)leader_epoch, all.max_size = max_size;
    if (all.key_size < KEY_FRONT)
        PyErr_SetString(PyExc_ValueError, "not the key of a group");
    /* A copy: `accept` could change the list, by which the memory is measured. */
    else if ((parts = PyList_GetSlice(parts, 0, PyList_Size(parts))) != NULL) {
        if (rules_of(tuple, &rules) && take_memory(&all, parts, &data, log_start_offset))
            joined = join_parts(&all, parts, &data);
        Py_DECREF(parts);
    }
    PyMem_Free(all.data);
    PyBuffer_Release(&data);
    return joined;
}

PyObject *locate_batches(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    long long position;
    if (!PyArg_ParseTuple(args, "y*L:locate_batches", &data, &position))
        return NULL;
    const uint8_t *at = data.buf, *end = at + data.len;
    Py_ssize_t count = 0;
    int64_t *places = PyMem_Malloc((size_t)(data.len / HEADER_SIZE + 1) * 2 * sizeof *places);
    int64_t *positions = places == NULL ? NULL : places + data.len / HEADER_SIZE + 1;
    while (places != NULL && end - at >= HEADER_SIZE) {
        int64_t size = (int64_t)read_i32(at + SIZE_AT) + LOG_OVERHEAD;
        if (at[MAGIC_AT] != 2 || size < HEADER_SIZE || size > end - at)
            break;
        places[count] = read_i64(at), positions[count++] = position + (at - (const uint8_t *)data.buf);
        at += size;
    }
    PyObject *found = places == NULL ? PyErr_NoMemory()
                                     : Py_BuildValue("y#y#", (const char *)places, count * (Py_ssize_t)sizeof *places,
                                                     (const char *)positions, count * (Py_ssize_t)sizeof *places);
    PyMem_Free(places);
    PyBuffer_Release(&data);
    return found;
}
