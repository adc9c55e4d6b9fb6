/* Every fixed maximum of the project, in one place. What a user may set has its range in
 * config/table.c; what no one should need to change stands here. Units are in the names. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

#define LIMIT_KEY_BYTES_MAX          255 /* RFC draft idempotency-key names none; 255 is what vendors use */
#define LIMIT_SCOPE_BYTES_MAX        4096
#define LIMIT_TENANT_BYTES_MAX       255
#define LIMIT_TEMPLATE_PARTS_MAX     16
#define LIMIT_KEY_SOURCES_MAX        8
#define LIMIT_POINTERS_MAX           64 /* pointers in one ignore or fields list */
#define LIMIT_POINTER_BYTES_MAX      512
#define LIMIT_JSON_DEPTH_MAX         256
#define LIMIT_JSON_NODES_MAX         (1U << 20)
#define LIMIT_FORM_PAIRS_MAX         4096
#define LIMIT_MULTIPART_PARTS_MAX    1024
#define LIMIT_MULTIPART_BOUNDARY_MAX 70   /* RFC 2046 section 5.1.1 */
#define LIMIT_NUMBER_DIGITS_MAX      1024 /* of one JSON number in a canonical form */
#define LIMIT_HEADERS_MAX            256  /* header lines of one message */
#define LIMIT_CONNECTION_OPTIONS_MAX 32 /* words of its Connection lines; each is compared with every line */
#define LIMIT_CONTENT_CODINGS_MAX    3  /* stacked Content-Encoding values */
#define LIMIT_ANSWER_HEAD_BYTES_MAX  (64U * 1024U)
#define LIMIT_OWNER_TEXT_BYTES_MAX   255
#define LIMIT_BATCH_OPS_MAX          512  /* operations of one store transaction */
#define LIMIT_LIST_PAGE_MAX          1000 /* records of one page of a listing */

#endif
