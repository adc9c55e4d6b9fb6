/* The request of a call: checked, copied into the call's arena in the form curl wants, and its body handed to curl
 * piece by piece where it is large or streamed. */
#include "base/error.h"
#include "net/http_client_parts.h"

/* From this size on curl would not send a body in one write with the head, and would keep a pointer to it. */
enum { POST_BYTES_MAX = 60 * 1024 };

bool target_is_sendable(struct slice target)
{
    for (size_t i = 0; i < target.len; i++) {
        unsigned char c = (unsigned char)target.ptr[i];
        if (c <= ' ' || c == 0x7f) {
            return false;
        }
    }
    return true;
}

static bool value_is_sendable(struct slice value)
{
    return value.len == 0 ||
           (memchr(value.ptr, '\r', value.len) == NULL && memchr(value.ptr, '\n', value.len) == NULL &&
            memchr(value.ptr, '\0', value.len) == NULL);
}

/* Lines that speak of the connection or the framing, which are the client's. */
static bool is_own(struct slice name)
{
    static const struct slice own[] = {
        {"content-length", 14}, {"transfer-encoding", 17}, {"expect", 6}, {"connection", 10},
        {"keep-alive", 10},     {"proxy-connection", 16},  {"te", 2},     {"upgrade", 7},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (slice_equal_nocase(name, own[i])) {
            return true;
        }
    }
    return false;
}

static int no_room(const struct http_call *call, hapax_error *err)
{
    return error_code(err, arena_error(&call->arena));
}

static int copy_method(struct http_call *call, struct slice method, hapax_error *err)
{
    if (method.len > HTTP_CALL_METHOD_BYTES_MAX || !slice_is_token(method) ||
        slice_equal(method, SLICE_LITERAL("CONNECT"))) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the method can't be sent");
    }
    memcpy(call->method, method.ptr, method.len);
    call->method[method.len] = '\0';
    return 0;
}

static int copy_target(struct http_call *call, const char *base, struct slice target, hapax_error *err)
{
    if (target.len == 0 || target.ptr[0] != '/' || !target_is_sendable(target)) {
        return error_set(err, HAPAX_E_ARGUMENT, 0,
                         "the target must begin with '/' and hold no blanks or control characters");
    }
    size_t base_len = strlen(base);
    char *copy =
        target.len > HTTP_CALL_HEAD_BYTES_MAX ? NULL : arena_alloc(&call->arena, base_len + target.len + 1);
    if (copy == NULL) {
        return target.len > HTTP_CALL_HEAD_BYTES_MAX ? error_code(err, HAPAX_E_LIMIT) : no_room(call, err);
    }
    memcpy(copy, base, base_len);
    memcpy(copy + base_len, target.ptr, target.len);
    copy[base_len + target.len] = '\0';
    call->target = copy;
    return 0;
}

/* Append a node; `text` as curl wants it: "Name: value", "Name;" for an empty value, "Name:" to leave one out. */
static struct curl_slist **add_node(struct http_call *call, struct curl_slist **end, char *text)
{
    struct curl_slist *node = arena_alloc(&call->arena, sizeof *node);
    if (node == NULL) {
        return NULL;
    }
    *node = (struct curl_slist){.data = text};
    *end = node;
    return &node->next;
}

/* A line of its own, for the fields that curl looks for by name. */
static struct curl_slist **add_header(struct http_call *call, struct curl_slist **end, const struct header *h,
                                      struct slice value)
{
    char *text = arena_alloc(&call->arena, h->name.len + value.len + 3);
    if (text == NULL) {
        return NULL;
    }
    memcpy(text, h->name.ptr, h->name.len);
    char *p = text + h->name.len;
    if (value.len == 0) {
        *p++ = ';';
    } else {
        *p++ = ':';
        *p++ = ' ';
        memcpy(p, value.ptr, value.len);
        p += value.len;
    }
    *p = '\0';
    return add_node(call, end, text);
}

/* All other lines go to curl as one: it goes through the list about fifteen times a request, comparing names, and
 * that was a fifth of a call's instructions with a dozen lines. Values were checked for line ends before. */
struct block {
    char *text;
    size_t len;
};

static void block_add(struct block *b, const struct header *h, struct slice value)
{
    if (b->len > 0) {
        b->text[b->len++] = '\r';
        b->text[b->len++] = '\n';
    }
    memcpy(b->text + b->len, h->name.ptr, h->name.len);
    b->len += h->name.len;
    b->text[b->len++] = ':';
    if (value.len > 0) {
        b->text[b->len++] = ' ';
        memcpy(b->text + b->len, value.ptr, value.len);
        b->len += value.len;
    } else if (b->len == h->name.len + 1) {
        b->text[b->len - 1] =
            ';'; /* the first line is the one that curl reads: this is its way of an empty value */
    }
}

static int block_begin(struct block *b, struct http_call *call, const struct http_call_options *o)
{
    size_t bytes = 1;
    for (size_t i = 0; i < o->header_count; i++) {
        size_t line = o->headers[i].name.len + o->headers[i].value.len + 4;
        if (line > HTTP_CALL_HEAD_BYTES_MAX || bytes > HTTP_CALL_HEAD_BYTES_MAX) {
            return HAPAX_E_LIMIT;
        }
        bytes += line;
    }
    *b = (struct block){.text = arena_alloc(&call->arena, bytes)};
    return b->text == NULL ? arena_error(&call->arena) : 0;
}

enum field { FIELD_HOST, FIELD_ACCEPT, FIELD_TYPE, FIELD_OTHER };

static enum field field_of(struct slice name)
{
    static const struct slice known[] = {{"host", 4}, {"accept", 6}, {"content-type", 12}};
    unsigned i = 0;
    while (i < FIELD_OTHER && !slice_equal_nocase(name, known[i])) {
        i++;
    }
    return (enum field)i;
}

static int copy_headers(struct http_call *call, const struct http_call_options *o, hapax_error *err)
{
    /* curl adds these by itself unless told not to. */
    static char no_accept[] = "Accept:";
    static char no_type[] = "Content-Type:";
    static char no_expect[] = "Expect:";
    bool has[FIELD_OTHER + 1] = {false};
    struct block block;
    struct curl_slist **end = &call->headers;
    int rc = block_begin(&block, call, o);
    if (rc != 0) {
        return error_code(err, rc);
    }
    for (size_t i = 0; i < o->header_count && end != NULL; i++) {
        const struct header *h = &o->headers[i];
        if (!slice_is_token(h->name) || !value_is_sendable(h->value)) {
            return error_set(err, HAPAX_E_ARGUMENT, 0, "a header of the request can't be sent");
        }
        if (is_own(h->name)) {
            continue;
        }
        enum field field = field_of(h->name);
        struct slice value = slice_trim(h->value);
        if (field == FIELD_HOST && (has[FIELD_HOST] || value.len == 0)) {
            return error_set(err, HAPAX_E_ARGUMENT, 0, "a request has one Host that is not empty");
        }
        has[field] = true;
        if (field == FIELD_OTHER) {
            block_add(&block, h, value);
        } else {
            end = add_header(call, end, h, value);
        }
    }
    if (end != NULL && block.len > 0) {
        block.text[block.len] = '\0';
        end = add_node(call, end, block.text);
    }
    if (end != NULL && !has[FIELD_ACCEPT]) {
        end = add_node(call, end, no_accept);
    }
    if (end != NULL && call->mode == WIRE_POST && !has[FIELD_TYPE]) {
        end = add_node(call, end, no_type);
    }
    if (end != NULL && call->mode == WIRE_UPLOAD) {
        end = add_node(call, end, no_expect);
    }
    return end == NULL ? no_room(call, err) : 0;
}

static bool announces_empty_body(const char *method)
{
    return strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;
}

static int choose_mode(struct http_call *call, const struct http_call_options *o, hapax_error *err)
{
    int64_t length = o->stream ? o->body_length : (int64_t)o->body.len;
    if (length < -1 || (o->body.len > 0 && o->body.ptr == NULL) || o->timeout_ms < 0 || o->silence_ms < 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "a length or time of the call is out of range");
    }
    bool head = strcmp(call->method, "HEAD") == 0;
    if (head && length != 0) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "a HEAD request can't carry a body");
    }
    call->stream = o->stream && length != 0;
    call->body_length = length;
    call->body = o->stream ? SLICE_NONE : o->body;
    if (length == 0) {
        call->mode = head ? WIRE_HEAD : announces_empty_body(call->method) ? WIRE_POST : WIRE_BARE;
    } else {
        call->mode = !o->stream && length <= POST_BYTES_MAX ? WIRE_POST : WIRE_UPLOAD;
    }
    return 0;
}

int call_describe(struct http_call *call, const struct http_origin *origin, const struct http_call_options *o,
                  hapax_error *err)
{
    int rc = copy_method(call, o->method, err);
    if (rc == 0) {
        rc = choose_mode(call, o, err);
    }
    if (rc == 0) {
        rc = copy_target(call, origin->base, o->target, err);
    }
    if (rc == 0) {
        rc = copy_headers(call, o, err);
    }
    call->head_bytes_max = o->head_bytes_max;
    call->silence_ms = o->silence_ms;
    call->expires_ms = o->timeout_ms > 0 ? client_now_ms(call->client) + o->timeout_ms : 0;
    return rc;
}

static size_t read_whole(struct http_call *call, char *to, size_t room)
{
    struct slice left = slice_from(call->body, (size_t)call->fed_bytes);
    size_t n = left.len < room ? left.len : room;
    memcpy(to, left.ptr, n);
    call->fed_bytes += (int64_t)n;
    return n;
}

size_t call_read_body(struct http_call *call, char *to, size_t room)
{
    if (!call->stream) {
        return read_whole(call, to, room);
    }
    size_t left = call->out.len - call->out_at;
    if (left == 0 && !call->out_ended) {
        call->send_paused = true;
        return CURL_READFUNC_PAUSE;
    }
    size_t n = left < room ? left : room;
    bool over = call->body_length >= 0 && (int64_t)n > call->body_length - call->fed_bytes;
    if (over || (n == 0 && call->body_length >= 0 && call->fed_bytes < call->body_length)) {
        call->reason =
            over ? "the request's body is longer than announced" : "the request's body ended early";
        return CURL_READFUNC_ABORT;
    }
    if (n > 0) {
        memcpy(to, call->out.ptr + call->out_at, n);
    }
    call->out_at += n;
    call->fed_bytes += (int64_t)n;
    if (call->out_at == call->out.len) {
        buf_clear(&call->out);
        call->out_at = 0;
    }
    if (call->out_refused && left - n <= HTTP_CALL_WRITE_LOW_BYTES) {
        call_errand(call, ERRAND_WRITABLE);
    }
    return n;
}

void call_nudge(struct http_call *call)
{
    if (call->send_paused && !call->paused && !call->nudged) {
        call->nudged = true;
        call_errand(call, ERRAND_FEED);
    }
}

bool http_call_write(struct http_call *call, struct slice bytes)
{
    if (call->cancelled || call->ended || call->out_ended || !call->stream || bytes.len == 0) {
        return true;
    }
    if (call->out_at > 0 && call->out_at >= call->out.len / 2) {
        buf_consume(&call->out, call->out_at);
        call->out_at = 0;
    }
    if (buf_append_slice(&call->out, bytes) != 0) {
        call->reason = "no memory for the request's body";
        call_errand(call, ERRAND_FAILED);
        return true;
    }
    if (call->send_paused) {
        call_errand(call, ERRAND_FEED);
    }
    bool more = call->out.len - call->out_at < HTTP_CALL_WRITE_HIGH_BYTES;
    call->out_refused = call->out_refused || !more;
    return more;
}

void http_call_write_end(struct http_call *call)
{
    if (call->cancelled || call->ended || call->out_ended) {
        return;
    }
    call->out_ended = true;
    if (call->send_paused) {
        call_errand(call, ERRAND_FEED);
    }
}
