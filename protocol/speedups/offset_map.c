/* SkimpyOffsetMap and ExactOffsetMap for many keys per call. Their memory and counters belong to the Python objects. */
#include "speedups.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

/* Keys are spread over far more memory than the caches hold: with pages of the usual size the processor would wait for
 * the address translation as long as for the memory itself. */
PyObject *zeroed(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { HUGE_PAGE = 1 << 21 };
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "n:zeroed", &size))
        return NULL;
    PyObject *memory = PyByteArray_FromStringAndSize(NULL, size);
    if (memory == NULL)
        return NULL;
    char *start = PyByteArray_AsString(memory);
#if defined(__linux__)
    uintptr_t first = ((uintptr_t)start + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)start + (size_t)size) & ~(uintptr_t)(HUGE_PAGE - 1);
    if (end > first)
        madvise((void *)first, end - first, MADV_HUGEPAGE);
#endif
    memset(start, 0, (size_t)size);
    return memory;
}

enum { ENTRIES, LATEST, LOOKUPS, PROBES, ARENA_END, STATE_SIZE };
enum { ARENA_ID_SIZE = 8, WINDOW = 4 };

typedef struct {
    uint8_t *memory;
    int64_t size, *state, slots;
    int id_size, compares_keys;
} offset_map;

typedef struct {
    const uint8_t *bytes;
    int32_t size;
    const uint8_t *digest;
    int digest_size;
} hashed_key;

static inline int is_empty(const offset_map *map, const uint8_t *slot)
{
    uint32_t word;
    for (int byte = 0; byte < map->id_size + 8; byte += 4) {
        memcpy(&word, slot + byte, 4);
        if (word)
            return 0;
    }
    return 1;
}

static inline int is_of(const offset_map *map, const uint8_t *slot, const hashed_key *key)
{
    if (!map->compares_keys)
        return memcmp(slot, key->digest, 8) == 0 && memcmp(slot + 8, key->digest + 8, (size_t)map->id_size - 8) == 0;
    if (memcmp(slot, key->digest, ARENA_ID_SIZE) != 0)
        return 0;
    int64_t start = read_i64(slot + ARENA_ID_SIZE);
    if (start < 0 || start > map->size - 4)
        return 0;
    int64_t size = read_u32(map->memory + start);
    return size == key->size && size <= map->size - start - 4
        && memcmp(map->memory + start + 4, key->bytes, (size_t)size) == 0;
}

static inline uint8_t *slot_of(const offset_map *map, const hashed_key *key, int64_t attempt)
{
    int64_t last_window = key->digest_size - WINDOW;
    int32_t window = read_i32(key->digest + (attempt < last_window ? attempt : last_window));
    /* Kafka's positionOf: the step is added as Java adds int32, with a wrap, before the absolute value is taken. */
    uint32_t step = attempt > last_window ? (uint32_t)(attempt - last_window) : 0;
    int32_t probe = (int32_t)((uint32_t)window + step);
    uint32_t distance = probe == INT32_MIN ? 0 : (uint32_t)(probe < 0 ? -probe : probe);
    uint64_t slots = (uint64_t)map->slots;
    uint64_t slot = slots <= UINT32_MAX ? distance % (uint32_t)slots : distance;
    return map->memory + slot * (uint64_t)(map->id_size + 8);
}

/* Return the key's slot, or the empty slot for it; NULL if other keys have all slots. */
static uint8_t *find(const offset_map *map, const hashed_key *key)
{
    /* From a negative window the slots fall to 0 and rise again: trying each of them takes up to twice their number. */
    int64_t attempts = key->digest_size - WINDOW + 2 * map->slots + 1;
    map->state[LOOKUPS]++;
    for (int64_t attempt = 0; attempt < attempts; attempt++) {
        uint8_t *slot = slot_of(map, key, attempt);
        map->state[PROBES]++;
        if (is_of(map, slot, key) || is_empty(map, slot))
            return slot;
    }
    return NULL;
}

/* Return false if there is no room. */
static int put(const offset_map *map, const hashed_key *key, int64_t offset, int64_t most_keys)
{
    int64_t *state = map->state, end = state[ARENA_END];
    if (state[ENTRIES] >= most_keys || (map->compares_keys && end + 4 + key->size > map->size))
        return 0;
    uint8_t *slot = find(map, key);
    if (slot == NULL)
        return 0;
    if (is_empty(map, slot)) {
        state[ENTRIES]++;
        if (map->compares_keys) {
            memcpy(slot, key->digest, ARENA_ID_SIZE);
            write_i64(slot + ARENA_ID_SIZE, end);
            write_u32(map->memory + end, (uint32_t)key->size);
            memcpy(map->memory + end + 4, key->bytes, (size_t)key->size);
            state[ARENA_END] = end + 4 + key->size;
        } else {
            memcpy(slot, key->digest, (size_t)map->id_size);
        }
    }
    write_i64(slot + map->id_size, offset);
    state[LATEST] = offset;
    return 1;
}

typedef struct {
    Py_buffer memory, state, keys, block, digests;
    offset_map map;
    columns rows;
    Py_ssize_t capacity, first, end;
    int digest_size;
} call;

static void release(call *c)
{
    Py_buffer *buffers[] = {&c->memory, &c->state, &c->keys, &c->block, &c->digests};
    for (int i = 0; i < 5; i++)
        if (buffers[i]->obj)
            PyBuffer_Release(buffers[i]);
}

/* Return false, with an exception, if the arguments do not describe a map. */
static int prepare(call *c)
{
    offset_map *map = &c->map;
    map->memory = c->memory.buf, map->size = c->memory.len, map->state = c->state.buf;
    c->digest_size = map->compares_keys ? 2 * ARENA_ID_SIZE : map->id_size;
    int sound = map->id_size >= 8 && map->id_size <= 64 && map->id_size % 4 == 0 && map->slots > 0
        && map->slots <= map->size / (map->id_size + 8)
        && c->state.len >= STATE_SIZE * 8 && c->first >= 0 && c->first <= c->end && c->end <= c->capacity
        && c->keys.len <= INT32_MAX && (c->digests.obj || map->id_size == 16)
        && (!c->digests.obj || c->digests.len >= (c->end - c->first) * c->digest_size)
        && map->state[ARENA_END] >= map->slots * (map->id_size + 8);
    if (!sound)
        PyErr_SetString(PyExc_ValueError, "no such offset map or rows");
    return sound && columns_of(&c->block, c->capacity, &c->rows);
}

/* Hash the next keys from row `row` on, at most MD5_MOST, and prefetch their first slots. Returns the number of keys
 * and their rows, and sets `row` to the next row; -1 for a row outside the buffer. */
static int
next_keys(call *c, Py_ssize_t *row, int64_t from_offset, hashed_key *keys, Py_ssize_t *rows, uint8_t (*digests)[16])
{
    const uint8_t *starts[MD5_MOST] = {NULL};
    int32_t sizes[MD5_MOST] = {0};
    int count = 0;
    for (; *row < c->end && count < MD5_MOST; ++*row) {
        int32_t start = c->rows.key_starts[*row], size = c->rows.key_sizes[*row];
        if (size < 0 || c->rows.offsets[*row] < from_offset)
            continue;
        if (start < 0 || start > c->keys.len - size)
            return -1;
        starts[count] = (const uint8_t *)c->keys.buf + start, sizes[count] = size, rows[count] = *row;
        count++;
    }
    if (!c->digests.obj)
        md5_many(starts, sizes, count, digests);
    for (int i = 0; i < count; i++) {
        const uint8_t *given = (const uint8_t *)c->digests.buf;
        keys[i] = (hashed_key){
            starts[i], sizes[i], given ? given + (rows[i] - c->first) * c->digest_size : digests[i], c->digest_size,
        };
        const uint8_t *slot = slot_of(&c->map, &keys[i], 0);
        __builtin_prefetch(slot, 1), __builtin_prefetch(slot + c->map.id_size + 7, 1);
    }
    return count;
}

static Py_ssize_t put_rows(call *c, int64_t from_offset, int64_t most_keys)
{
    hashed_key keys[MD5_MOST];
    Py_ssize_t rows[MD5_MOST], row = c->first;
    uint8_t digests[MD5_MOST][16];
    while (row < c->end) {
        int count = next_keys(c, &row, from_offset, keys, rows, digests);
        if (count < 0)
            return -1;
        for (int i = 0; i < count; i++)
            if (!put(&c->map, &keys[i], c->rows.offsets[rows[i]], most_keys))
                return rows[i];
    }
    return c->end;
}

PyObject *put_many(PyObject *Py_UNUSED(module), PyObject *args)
{
    call c = {0};
    long long slots, from_offset, most_keys;
    Py_ssize_t row = 0;
    if (!PyArg_ParseTuple(args, "w*w*(Lip)y*(w*nnn)z*LL:put_many", &c.memory, &c.state, &slots, &c.map.id_size,
                          &c.map.compares_keys, &c.keys, &c.block, &c.capacity, &c.first, &c.end, &c.digests,
                          &from_offset, &most_keys))
        return NULL;
    c.map.slots = slots;
    int sound = prepare(&c);
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        row = put_rows(&c, from_offset, most_keys);
        Py_END_ALLOW_THREADS
        if (row < 0)
            PyErr_SetString(PyExc_ValueError, "a key lies outside its buffer");
    }
    release(&c);
    return !sound || row < 0 ? NULL : PyLong_FromSsize_t(row);
}

static int get_rows(call *c, int64_t *found)
{
    hashed_key keys[MD5_MOST];
    Py_ssize_t rows[MD5_MOST], row = c->first;
    uint8_t digests[MD5_MOST][16];
    for (Py_ssize_t at = c->first; at < c->end; at++)
        found[at] = -1;
    while (row < c->end) {
        int count = next_keys(c, &row, INT64_MIN, keys, rows, digests);
        if (count < 0)
            return 0;
        for (int i = 0; i < count; i++) {
            uint8_t *slot = find(&c->map, &keys[i]);
            if (slot != NULL && !is_empty(&c->map, slot))
                found[rows[i]] = read_i64(slot + c->map.id_size);
        }
    }
    return 1;
}

PyObject *get_many(PyObject *Py_UNUSED(module), PyObject *args)
{
    call c = {0};
    Py_buffer found;
    long long slots;
    int inside = 1;
    if (!PyArg_ParseTuple(args, "w*w*(Lip)y*(w*nnn)z*w*:get_many", &c.memory, &c.state, &slots, &c.map.id_size,
                          &c.map.compares_keys, &c.keys, &c.block, &c.capacity, &c.first, &c.end, &c.digests, &found))
        return NULL;
    c.map.slots = slots;
    int sound = prepare(&c);
    if (sound && found.len / 8 < c.end) {
        PyErr_SetString(PyExc_ValueError, "no room for what is found");
        sound = 0;
    }
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        inside = get_rows(&c, found.buf);
        Py_END_ALLOW_THREADS
        if (!inside)
            PyErr_SetString(PyExc_ValueError, "a key lies outside its buffer");
    }
    PyBuffer_Release(&found);
    release(&c);
    if (!sound || !inside)
        return NULL;
    Py_RETURN_NONE;
}
