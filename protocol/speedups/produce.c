/* Decodes a produce request in one pass, from its header to the positions of its batches; encodes its usual response. */
#include "produce_parts.h"

enum { MAX_ENTRIES = 10000, ON_THE_STACK = 1024 };

/* Return a string or None, or bytes for a topic id; NULL, without an exception, if it is invalid. */
static PyObject *take_text(reader *in, int64_t size, int is_id)
{
    if (in->at != NULL && size == -1)
        return Py_NewRef(Py_None);
    const char *at = size > INT16_MAX ? NULL : (const char *)take(in, size);
    if (at == NULL)
        return NULL;
    PyObject *text = is_id ? PyBytes_FromStringAndSize(at, size) : PyUnicode_DecodeUTF8(at, size, NULL);
    if (text == NULL)
        PyErr_Clear();
    return text;
}

static int append(PyObject *list, PyObject *item)
{
    int added = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return added;
}

/* The result: for each partition (topic, index), and the same with its records, a part of `buffer`, whose bytes are at
   `start`. */
typedef struct {
    PyObject *keys, *entries, *buffer;
    const uint8_t *start;
} findings;

/* Return 0 if the partition is not of the usual form. */
static int add_partition(reader *in, PyObject *topic, findings *out)
{
    int32_t index = take_i32(in);
    int64_t size = take_count(in, 4);
    size = size == -1 ? 0 : size;
    const uint8_t *records = take(in, size);
    take_no_tags(in);
    if (in->at == NULL)
        return 0;
    Py_ssize_t at = records - out->start;
    return append(out->keys, Py_BuildValue("Oi", topic, (int)index))
        && append(out->entries, Py_BuildValue("OiN", topic, (int)index,
                                              PySequence_GetSlice(out->buffer, at, at + (Py_ssize_t)size)));
}

static int add_topics(reader *in, int version, findings *out)
{
    int64_t topics = take_count(in, 4), room = MAX_ENTRIES;
    if (topics < 0)
        in->at = NULL;
    for (; in->at != NULL && topics > 0; topics--) {
        int is_id = version >= SINCE_TOPIC_IDS;
        PyObject *topic = take_text(in, is_id ? UUID_SIZE : take_count(in, 2), is_id);
        int64_t partitions = take_count(in, 4);
        if (topic == NULL || topic == Py_None || partitions < 0 || partitions > room)
            in->at = NULL;
        room -= partitions + 1;
        for (; in->at != NULL && partitions > 0; partitions--)
            if (!add_partition(in, topic, out))
                in->at = NULL;
        Py_XDECREF(topic);
        take_no_tags(in);
    }
    take_no_tags(in);
    return in->at != NULL;
}

/* Return NULL without an exception if it is not a usual request. */
static PyObject *read_request(reader *in, findings *out)
{
    int key = take_i16(in), version = take_i16(in), correlation_id = take_i32(in);
    PyObject *client_id = take_text(in, take_i16(in), 0), *transactional_id = NULL, *request = NULL;
    in->is_flexible = version >= SINCE_FLEXIBLE;
    take_no_tags(in);
    if (client_id != NULL && key == 0 && version >= 0 && version <= SINCE_TOPIC_IDS)
        transactional_id = version < SINCE_TRANSACTIONS ? Py_NewRef(Py_None) : take_text(in, take_count(in, 2), 0);
    int acks = take_i16(in), timeout = take_i32(in);
    if (transactional_id != NULL && add_topics(in, version, out))
        request = Py_BuildValue("iOOiiOO", correlation_id, client_id, transactional_id, acks, timeout, out->keys,
                                out->entries);
    Py_XDECREF(client_id), Py_XDECREF(transactional_id);
    return request;
}

PyObject *read_produce(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer data;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "read_produce(buffer, start, end)");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *request = NULL;
    if (0 <= start && start <= end && end <= data.len) {
        reader in = {(const uint8_t *)data.buf + start, (const uint8_t *)data.buf + end, 0};
        findings out = {PyList_New(0), PyList_New(0), args[0], data.buf};
        if (out.keys != NULL && out.entries != NULL)
            request = read_request(&in, &out);
        Py_XDECREF(out.keys), Py_XDECREF(out.entries);
    }
    PyBuffer_Release(&data);
    if (request == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return request;
}

/* Return 0 if the topic is not of the type that the version uses: a name or an id. */
static int put_topic(writer *out, PyObject *topic)
{
    Py_ssize_t size = 0;
    if (out->version >= SINCE_TOPIC_IDS) {
        if (!PyBytes_Check(topic) || PyBytes_Size(topic) != UUID_SIZE)
            return 0;
        put_bytes(out, PyBytes_AsString(topic), UUID_SIZE);
        return 1;
    }
    const char *name = PyUnicode_Check(topic) ? PyUnicode_AsUTF8AndSize(topic, &size) : NULL;
    if (name == NULL || size > INT16_MAX)
        return 0;
    put_count(out, size, 2), put_bytes(out, name, size);
    return 1;
}

/* Append the number at `index` of a tuple; 0 if it is not an int, whose conversion cannot run Python code. */
static int put_item(writer *out, PyObject *tuple, Py_ssize_t index, int size)
{
    PyObject *number = PyTuple_GetItem(tuple, index);
    if (!PyLong_CheckExact(number))
        return 0;
    put_number(out, PyLong_AsLongLong(number), size);
    return 1;
}

/* Return 0 if the result is not of the type that this function writes. */
static int put_partition(writer *out, PyObject *key, PyObject *result)
{
    if (!PyTuple_Check(result) || PyTuple_Size(result) < 5 || !put_item(out, key, 1, 4))
        return 0;
    put_number(out, 0, 2);
    if (!put_item(out, result, 0, 8) || (out->version >= 2 && !put_item(out, result, 3, 8))
        || (out->version >= SINCE_LOG_START && !put_item(out, result, 4, 8)))
        return 0;
    if (out->version >= SINCE_RECORD_ERRORS)
        put_count(out, 0, 4), put_count(out, -1, 2);
    put_no_tags(out);
    return 1;
}

/* Return the number of keys from `first` on with the same topic; 0 for an invalid key, -1 with an exception. */
static Py_ssize_t of_one_topic(PyObject *keys, Py_ssize_t first, Py_ssize_t count)
{
    PyObject *topic = NULL;
    Py_ssize_t next = first;
    for (; next < count; next++) {
        PyObject *key = PyList_GetItem(keys, next);
        if (!PyTuple_Check(key) || PyTuple_Size(key) != 2)
            return 0;
        PyObject *other = PyTuple_GetItem(key, 0);
        /* Comparing objects of other types may run Python code, which could change these lists. */
        if (!PyUnicode_CheckExact(other) && !PyBytes_CheckExact(other))
            return 0;
        topic = topic == NULL ? other : topic;
        int is_same = topic == other ? 1 : PyObject_RichCompareBool(topic, other, Py_EQ);
        if (is_same < 1)
            return is_same < 0 ? -1 : next - first;
    }
    return next - first;
}

static int put_topics(writer *out, PyObject *keys, PyObject *results)
{
    Py_ssize_t count = PyList_Size(keys), topics = 0, run;
    for (Py_ssize_t first = 0; first < count; first += run, topics++)
        if ((run = of_one_topic(keys, first, count)) <= 0)
            return 0;
    put_count(out, topics, 4);
    for (Py_ssize_t first = 0; first < count; first += run) {
        run = topics == 1 ? count : of_one_topic(keys, first, count);
        if (!put_topic(out, PyTuple_GetItem(PyList_GetItem(keys, first), 0)))
            return 0;
        put_count(out, run, 4);
        for (Py_ssize_t next = first; next < first + run; next++)
            if (!put_partition(out, PyList_GetItem(keys, next), PyList_GetItem(results, next)))
                return 0;
        put_no_tags(out);
    }
    return 1;
}

/* Write the whole frame, which begins with its length `size`. */
static int put_answer(writer *out, int64_t correlation_id, PyObject *keys, PyObject *results, int64_t throttle)
{
    Py_ssize_t size = out->size;
    out->size = 0;
    put_number(out, size - 4, 4), put_number(out, correlation_id, 4), put_no_tags(out);
    int is_plain = put_topics(out, keys, results);
    if (out->version >= 1)
        put_number(out, throttle, 4);
    put_no_tags(out);
    return is_plain && !PyErr_Occurred();
}

PyObject *write_produced(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 5 || !PyList_Check(args[2]) || !PyList_Check(args[3]) || PyList_Size(args[2]) != PyList_Size(args[3])) {
        PyErr_SetString(PyExc_TypeError, "write_produced(version, correlation_id, keys, results, throttle_time_ms)");
        return NULL;
    }
    writer out = {.version = (int)PyLong_AsLong(args[0])};
    int64_t correlation_id = PyLong_AsLongLong(args[1]), throttle = PyLong_AsLongLong(args[4]);
    PyObject *frame = NULL;
    if (!PyErr_Occurred() && out.version <= SINCE_TOPIC_IDS
        && put_answer(&out, correlation_id, args[2], args[3], throttle)) {
        uint8_t on_the_stack[ON_THE_STACK];
        uint8_t *memory = out.size > ON_THE_STACK ? PyMem_Malloc((size_t)out.size) : on_the_stack;
        if (memory == NULL)
            return PyErr_NoMemory();
        out.at = memory, out.room = out.size;
        if (put_answer(&out, correlation_id, args[2], args[3], throttle) && out.size == out.room)
            frame = PyBytes_FromStringAndSize((const char *)memory, out.size);
        if (memory != on_the_stack)
            PyMem_Free(memory);
    }
    if (frame == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return frame;
}
