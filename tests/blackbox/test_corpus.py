"""Requests as they stand in the field (tests/corpus), sent byte for byte; what becomes of each is said here.

A case is a route and the files sent through it, in order. A word tells what is expected of each answer:
`executed`, `replayed` (of the case's first execution, or `replayed 3` of its third), `attached`, `unprotected`,
`passed` (not a protected method: no marker), or the type of a problem."""

import dataclasses
import pathlib
import re
import threading

import pytest
from harness import Answer, config_for, wait_until

CORPUS = pathlib.Path(__file__).resolve().parents[1] / "corpus"

PROBLEMS = {  # status, marker, whether the connection ends
    "key-missing": (400, "rejected", False),
    "key-invalid": (400, "rejected", False),
    "body-invalid": (400, "rejected", False),
    "key-reused": (422, "rejected", False),
    "body-too-large": (413, "rejected", False),
    "malformed-request": (400, None, True),
    "expectation-unknown": (417, "rejected", True),
    "request-timeout": (408, None, True),
}


@dataclasses.dataclass
class Case:
    name: str
    steps: list  # (file, word, ...): as many words as the file has requests; or (file, edits, word, ...)
    route: dict = dataclasses.field(default_factory=dict)
    effects: int = 1  # requests that reach the upstream
    answer: Answer = None  # the upstream's; without it 201 and the number of the effect


def edge(name, *words, effects=1, **route):
    """One file of edge/, sent twice: each word (or list of words) is what one sending gets."""
    steps = [(f"edge/{name}.http", *([w] if isinstance(w, str) else w)) for w in words]
    return Case(name, steps, route, effects)


ORDER_STEP = "'{json:/order_id}|{json:/operation}'"
ORDER_VERSION = "'{json:/order_id}|{json:/version}'"

VERSIONS = ["int_9", "int_10", "str_9", "str_10", "semver", "epoch_s", "epoch_ms", "iso_z", "iso_no_zone", "iso_nanos",
            "leap", "future", "rfc1123"]

# Every file of edge/, twice: a request that is carried out is replayed, one that is refused is refused again.
EDGE = [
    edge("amount_string_trailing_zero", "executed", "replayed"),
    edge("base", "executed", "replayed"),
    edge("bigint_a", "executed", "replayed", key=ORDER_STEP),
    edge("bigint_b", "executed", "replayed", key=ORDER_STEP),
    edge("content_type_missing", "executed", "replayed"),
    edge("deep_nesting", "body-too-large", "body-too-large", effects=0),
    edge("expect_unknown", "expectation-unknown", "expectation-unknown", effects=0),
    edge("float_0_1_plus_0_2", "executed", "replayed"),
    edge("float_1", "executed", "replayed"),
    edge("float_1_0", "executed", "replayed"),
    edge("float_1e0", "executed", "replayed"),
    edge("form_bad_pct", "key-invalid", "key-invalid", effects=0, key="form:order_id"),
    edge("form_bracket", "executed", "replayed", key="'form:order[id]'"),
    edge("form_pct20", "executed", "replayed", key="form:order_id"),
    edge("form_plus", "executed", "replayed", key="form:order_id"),
    edge("get_with_key", "passed", "passed", effects=2),
    edge("gzip_bomb_20mb", "body-too-large", "body-too-large", effects=0),
    edge("head_with_key", "passed", "passed", effects=2),
    edge("header_folding", "malformed-request", "malformed-request", effects=0),
    edge("id_number", "executed", "replayed", key=ORDER_STEP),
    edge("json_bom", "executed", "replayed"),
    edge("json_duplicate_member_escaped", "body-invalid", "body-invalid", effects=0, key=ORDER_STEP),
    edge("json_nan", "body-invalid", "body-invalid", effects=0),
    edge("json_truncated", "body-invalid", "body-invalid", effects=0),
    # JSON between systems is UTF-8 (RFC 8259); a body that says otherwise has no reading here.
    edge("json_utf16", "body-invalid", "body-invalid", effects=0),
    edge("key_case_differs", "executed", "replayed"),
    edge("key_latin1_bytes", "key-invalid", "key-invalid", effects=0),
    edge("key_long_256", "key-invalid", "key-invalid", effects=0),
    edge("key_long_8k", "key-invalid", "key-invalid", effects=0),
    edge("key_placeholder_undefined", "key-invalid", "key-invalid", effects=0),
    edge("key_quoted", "executed", "replayed"),
    edge("key_trailing_space", "executed", "replayed"),
    edge("key_two_headers_differ", "key-invalid", "key-invalid", effects=0),
    edge("key_utf8_bytes", "key-invalid", "key-invalid", effects=0),
    edge("length_and_chunked", "malformed-request", "malformed-request", effects=0),
    edge("length_negative", "malformed-request", "malformed-request", effects=0),
    edge("length_plus_sign", "malformed-request", "malformed-request", effects=0),
    # A bare LF would be a line end to some upstreams and none to others.
    edge("lf_only", "malformed-request", "malformed-request", effects=0),
    edge("lowercase_headers", "executed", "replayed"),
    edge("method_override", "executed", "replayed"),
    edge("missing_id", "key-missing", "key-missing", effects=0, key=ORDER_STEP),
    edge("no_key", "key-missing", "key-missing", effects=0),
    # Without length and coding the body is empty. What follows is the beginning of a next request that never ends.
    edge("no_length_no_te", ["executed", "request-timeout"], ["replayed", "request-timeout"],
         timeouts="{header: 500ms}"),
    edge("null_id", "key-missing", "key-missing", effects=0, key=ORDER_STEP),
    edge("object_id", "key-invalid", "key-invalid", effects=0, key=ORDER_STEP),
    edge("path_dot_segment", "executed", "replayed"),
    edge("pipelined_twice", ["executed", "replayed"], ["replayed", "replayed"]),
    edge("pointer_array_index", "executed", "replayed", key="json:/lines/1/id"),
    edge("put_with_key", "unprotected", "unprotected", effects=2),
    edge("query_key_twice", "key-invalid", "key-invalid", effects=0, key="query:key"),
    edge("query_reordered", "executed", "replayed", key="query:key"),
    edge("same_key_dry_run_query", "executed", "replayed"),
    edge("same_key_other_body", "executed", "replayed"),
    edge("same_key_other_path", "executed", "replayed"),
    edge("slash_escaped", "executed", "replayed"),
    edge("space_before_colon", "malformed-request", "malformed-request", effects=0),
    edge("template_separator_a", "executed", "replayed", key=ORDER_STEP),
    edge("template_separator_b", "executed", "replayed", key=ORDER_STEP),
    edge("two_lengths", "malformed-request", "malformed-request", effects=0),
    edge("unicode_escaped", "executed", "replayed"),
    edge("unicode_literal", "executed", "replayed"),
    edge("unicode_lone_surrogate", "body-invalid", "body-invalid", effects=0),
    *[edge(f"version_{v}", "executed", "replayed", key=ORDER_VERSION) for v in VERSIONS],
]

PAYPAL_STATUS = "'{form:txn_id}|{form:payment_status}'"
DEPLOY = "'{json:/repo}|{json:/sha}|{json:/env}|{json:/step}'"
SLACK_MESSAGE = "'{json:/team_id}|{json:/event/channel}|{json:/event/ts}'"
PLAIN_SUCCESS = Answer(200, [("Content-Type", "text/plain")], b"success")
TWIML = Answer(200, [("Content-Type", "text/xml")], b"<Response/>")

SCENARIOS = [
    # --- Keys: one operation or two. ---
    Case("all forms of one key are one key", [
        ("edge/base.http", "executed"), ("edge/lowercase_headers.http", "replayed"), ("edge/key_quoted.http", "replayed"),
        ("edge/key_trailing_space.http", "replayed")]),
    Case("only quoted keys where the syntax is strict", [
        ("edge/base.http", "key-invalid"), ("edge/key_quoted.http", "executed"), ("edge/key_quoted.http", "replayed")],
        {"key_syntax": "strict"}),
    Case("keys that differ in case are two", [
        ("edge/base.http", "executed"), ("edge/key_case_differs.http", "executed"), ("edge/base.http", "replayed")],
        effects=2),
    Case("another path is another operation", [
        ("edge/base.http", "executed"), ("edge/same_key_other_path.http", "executed"),
        ("edge/same_key_other_path.http", "replayed 2")], effects=2),
    Case("a method override is another operation", [
        ("edge/base.http", "executed"), ("edge/method_override.http", "executed"), ("edge/base.http", "replayed"),
        ("edge/method_override.http", "replayed 2")], effects=2),
    Case("requests without a key pass unprotected where the route says so", [
        ("edge/no_key.http", "unprotected"), ("edge/no_key.http", "unprotected")], {"missing": "pass"}, effects=2),
    Case("a malformed key does not pass as a missing one", [
        (f"edge/{f}.http", "key-invalid") for f in ("key_long_256", "key_placeholder_undefined", "key_latin1_bytes",
                                                    "key_two_headers_differ")], {"missing": "pass"}, effects=0),
    Case("put is protected where the route says so", [
        ("edge/put_with_key.http", "executed"), ("edge/put_with_key.http", "replayed")], {"protect": "[POST, PUT]"}),
    Case("an answer to a post is never the answer to a get or head", [
        ("edge/base.http", [(b"POST /orders", b"POST /orders/1001"), (b"k-base-1", b"k-get")], "executed"),
        ("edge/get_with_key.http", "passed"), ("edge/head_with_key.http", "passed")], effects=3),
    Case("integers beyond double precision are two keys", [
        ("edge/bigint_a.http", "executed"), ("edge/bigint_b.http", "executed"), ("edge/bigint_a.http", "replayed"),
        ("edge/bigint_b.http", "replayed 2")], {"key": ORDER_STEP}, effects=2),
    Case("a number and the text of its digits are two keys", [
        ("edge/id_number.http", "executed"), ("edge/base.http", "executed"), ("edge/id_number.http", "replayed"),
        ("edge/base.http", [(b'"1001"', b'1001  ')], "key-reused")], {"key": ORDER_STEP}, effects=2),
    Case("a separator inside of a value does not make two keys one", [
        ("edge/template_separator_a.http", "executed"), ("edge/template_separator_b.http", "executed"),
        ("edge/template_separator_a.http", "replayed")], {"key": ORDER_STEP}, effects=2),
    Case("plus and percent 20 are one blank in a form's key", [
        ("edge/form_plus.http", "executed"), ("edge/form_pct20.http", "replayed")], {"key": "form:order_id"}),
    Case("a bad escape in a form is refused with a key from elsewhere as well", [
        ("edge/form_bad_pct.http", [(b"\r\nContent-Length", b"\r\nIdempotency-Key: k\r\nContent-Length")],
         "body-invalid")], effects=0),
    Case("the order of query parameters does not matter", [
        ("edge/query_reordered.http", "executed"),
        ("edge/query_reordered.http", [(b"?x=1&key=a%2Fb", b"?key=a%2fb&x=1")], "replayed"),
        ("edge/query_reordered.http", [(b"?x=1&", b"?x=2&")], "key-reused")], {"key": "query:key"}),
    Case("a query parameter that stands twice with one value is one key", [
        ("edge/query_key_twice.http", [(b"key=b", b"key=a")], "executed")], {"key": "query:key"}),
    Case("a pointer's index has one form", [
        ("edge/pointer_array_index.http", "key-missing")], {"key": "json:/lines/01/id"}, effects=0),
    Case("a pointer behind the last element names nothing", [
        ("edge/pointer_array_index.http", "key-missing")], {"key": "json:/lines/-/id"}, effects=0),
    Case("dot segments are part of the path that was asked for", [
        ("edge/path_dot_segment.http", "executed"),
        ("edge/path_dot_segment.http", [(b"/orders/1/../2/", b"/orders/2/")], "executed"),
        ("edge/path_dot_segment.http", "replayed")], effects=2),

    # --- Content: the same request or another. ---
    Case("other content is refused and the first answer stands", [
        ("edge/base.http", "executed"), ("edge/same_key_other_body.http", "key-reused"),
        ("edge/amount_string_trailing_zero.http", "key-reused"), ("edge/base.http", "replayed")]),
    Case("a dry run is not the answer to the real run", [
        ("edge/same_key_dry_run_query.http", "executed"), ("edge/base.http", "key-reused")]),
    Case("one number in three forms is one content", [
        ("edge/float_1.http", "executed"), ("edge/float_1_0.http", "replayed"), ("edge/float_1e0.http", "replayed")]),
    Case("sums in binary are not rounded to look equal", [
        ("edge/float_0_1_plus_0_2.http", "executed"),
        ("edge/float_0_1_plus_0_2.http", [(b"0.30000000000000004", b"0.3                ")], "key-reused")]),
    Case("an escaped letter is that letter", [
        ("edge/unicode_escaped.http", "executed"), ("edge/unicode_literal.http", "replayed")]),
    Case("an escaped slash is a slash", [
        ("edge/slash_escaped.http", "executed"), ("edge/slash_escaped.http", [(rb'a\/b"', b'a/b" ')], "replayed")]),
    Case("a byte order mark is no content", [
        ("edge/base.http", "executed"), ("edge/json_bom.http", "replayed")]),
    Case("a body that could not be read leaves the key free", [
        ("edge/json_truncated.http", "body-invalid"),
        ("edge/json_truncated.http", [(b": 18", b": 19"), (b'"1001"', b'"1001"}')], "executed")]),
    Case("the same bytes under another media type are another content", [
        ("edge/content_type_missing.http", "executed"),
        ("edge/base.http", [(b"k-base-1", b"k-ct")], "key-reused")]),
    Case("versions of one entity are operations of their own", [
        *[(f"edge/version_{v}.http", "executed") for v in VERSIONS],
        *[(f"edge/version_{v}.http", f"replayed {i + 1}") for i, v in enumerate(VERSIONS)]],
        {"key": ORDER_VERSION}, effects=len(VERSIONS)),

    # --- Senders' retries. ---
    Case("shopify: a retry carries the event's id again", [
        ("shopify/orders_paid.http", "executed"), ("shopify/orders_paid_retry.http", "replayed"),
        ("shopify/orders_paid_lowercase.http", "replayed")], {"key": "header:X-Shopify-Event-Id"}),
    Case("shopify: two subscriptions bring one event", [
        ("shopify/orders_paid.http", "executed"), ("shopify/orders_paid_second_subscription.http", "replayed")],
        {"key": "header:X-Shopify-Event-Id"}),
    # The id of the delivery is the wrong key: it is another one for each subscription.
    Case("shopify: two subscriptions are two deliveries", [
        ("shopify/orders_paid.http", "executed"), ("shopify/orders_paid_second_subscription.http", "executed")],
        {"key": "header:X-Shopify-Webhook-Id"}, effects=2),
    Case("stripe: a redelivery with its volatile member ignored", [
        ("stripe/payment_intent_succeeded.http", "executed"),
        ("stripe/payment_intent_succeeded_redelivery.http", "replayed")],
        {"key": "json:/id", "ignore": "[/pending_webhooks]"}),
    Case("stripe: a redelivery where only the object counts", [
        ("stripe/payment_intent_succeeded.http", "executed"),
        ("stripe/payment_intent_succeeded_redelivery.http", "replayed")],
        {"key": "json:/id", "fingerprint": "{fields: [/data/object]}"}),
    Case("stripe: a redelivery where nobody said what is volatile", [
        ("stripe/payment_intent_succeeded.http", "executed"),
        ("stripe/payment_intent_succeeded_redelivery.http", "key-reused")], {"key": "json:/id"}),
    Case("github: a push and a pull request build one commit once", [
        ("github/push.http", "executed"), ("github/pull_request_synchronize.http", "replayed")],
        {"key": "'{json:/repository/full_name}|{json:/after}|build'",
         "fingerprint": "{fields: [/repository/full_name, /after]}"}),
    Case("github: a delivery as a form", [
        ("github/push_form.http", "executed"), ("github/push_form.http", "replayed")],
        {"key": "header:X-GitHub-Delivery"}),
    Case("gitlab: the sender brings the key", [
        ("gitlab/pipeline_success.http", "executed"), ("gitlab/pipeline_running_late.http", "executed"),
        ("gitlab/pipeline_success.http", "replayed")], effects=2),
    Case("paypal: a retry has the event's id and its own transmission id", [
        ("paypal/payment_capture_completed.http", "executed"),
        ("paypal/payment_capture_completed_retry.http", "replayed")], {"key": "json:/id"}),
    Case("paypal: two states of one transaction", [
        ("paypal/ipn_pending.http", "executed"), ("paypal/ipn_completed.http", "executed"),
        ("paypal/ipn_pending.http", "replayed")], {"key": PAYPAL_STATUS}, effects=2),
    # The transaction alone is no key: its second state would be lost, so at least it is refused aloud.
    Case("paypal: the transaction alone is no key", [
        ("paypal/ipn_pending.http", "executed"), ("paypal/ipn_completed.http", "key-reused")], {"key": "form:txn_id"}),
    Case("alipay: a resend has another time and signature and gets the same word", [
        ("alipay/trade_success.http", "executed"), ("alipay/trade_success_resend.http", "replayed")],
        {"key": "form:notify_id", "ignore": "[/notify_time, /sign]"}, answer=PLAIN_SUCCESS),
    Case("alipay: success and later finished ship once", [
        ("alipay/trade_success.http", "executed"), ("alipay/trade_finished.http", "replayed")],
        {"key": "'{form:out_trade_no}|ship'", "fingerprint": "none"}),
    Case("alipay: a form in another charset is compared by its bytes", [
        ("alipay/trade_success_gbk.http", "executed"), ("alipay/trade_success_gbk.http", "replayed")],
        {"key": "form:notify_id"}),
    Case("wechat: a notice encrypted anew is the same notice", [
        ("wechatpay/v3_payment.http", "executed"), ("wechatpay/v3_payment_reencrypted.http", "replayed")],
        {"key": "json:/id", "ignore": "[/resource/ciphertext, /resource/nonce]"}),
    Case("twilio: tokens of two states", [
        ("twilio/status_delivered.http", "executed"), ("twilio/status_sent_late.http", "executed"),
        ("twilio/status_delivered.http", "replayed")], {"key": "header:I-Twilio-Idempotency-Token"}, effects=2),
    Case("twilio: an answer in XML stays XML", [
        ("twilio/inbound_sms.http", "executed"), ("twilio/inbound_sms.http", "replayed")],
        {"key": "header:I-Twilio-Idempotency-Token"}, answer=TWIML),
    # GET can't be protected: it is safe by definition, and a sender that means more by it needs an inbox.
    Case("twilio: a callback by get passes", [("twilio/status_get.http", "passed")],
         {"key": "header:I-Twilio-Idempotency-Token"}),
    Case("slack: one message under two event ids", [
        ("slack/event_message.http", "executed"), ("slack/event_message_retry1.http", "replayed"),
        ("slack/event_message_new_event_id.http", "replayed")],
        {"key": SLACK_MESSAGE, "ignore": "[/event_id, /event_time]"}),
    Case("slack: a retry of a first that never came is carried out", [
        ("slack/event_first_failed_retry.http", "executed")], {"key": "json:/event_id"}),
    Case("slack: a challenge is no event", [
        ("slack/url_verification.http", "unprotected"), ("slack/url_verification.http", "unprotected")],
        {"key": "json:/event_id", "missing": "pass"}, effects=2),
    # The id is inside of a JSON text inside of a form field, where no key source reaches: the field as a whole is too long.
    Case("slack: a form without the key's field", [("slack/interactive_payload.http", "key-missing")],
         {"key": "form:action_ts"}, effects=0),
    Case("woocommerce: a ping has no key", [
        ("woocommerce/ping.http", "key-missing")], {"key": "header:X-WC-Webhook-Delivery-ID"}, effects=0),
    Case("woocommerce: empty headers are no key, not a shared one", [
        ("woocommerce/empty_headers.http", "key-invalid")],
        {"key": "header:X-WC-Webhook-Delivery-ID", "missing": "pass"}, effects=0),
    Case("zapier: a replay writes another time into the body", [
        ("nocode/zapier_post.http", "executed"), ("nocode/zapier_post_retry.http", "replayed")],
        {"key": "query:key", "ignore": "[/zap_meta_human_now]"}),
    Case("n8n: an expression that was never evaluated is no key", [
        ("nocode/n8n_http_node.http", "key-invalid"), ("nocode/n8n_http_node.http", "key-invalid")],
        {"missing": "pass"}, effects=0),
    Case("n8n: the key inside of an array", [
        ("nocode/n8n_items_array.http", "executed"), ("nocode/n8n_items_array.http", "replayed")],
        {"key": "'{json:/0/json/orderId}|{json:/0/json/step}'"}),
    Case("make: an empty part of a key is an error", [
        ("nocode/make_form.http", "key-invalid")], {"key": "'{form:order_id}|{form:operation}|{form:step}'"}, effects=0),
    Case("make: JSON sent as text gives its key", [
        ("nocode/make_text_accepted.http", "executed"), ("nocode/make_text_accepted.http", "replayed")],
        {"key": "'{json:/order_id}|{json:/operation}'"}),
    Case("cloudevents: source and id together are the key", [
        ("cloudevents/structured.http", "executed"), ("cloudevents/structured_same_id_other_source.http", "executed"),
        ("cloudevents/structured_seq_9.http", "executed"), ("cloudevents/structured.http", "replayed")],
        {"key": "'{json:/source}|{json:/id}'"}, effects=3),
    Case("cloudevents: attributes as headers", [
        ("cloudevents/binary_percent.http", "executed"), ("cloudevents/binary_percent.http", "replayed")],
        {"key": "'{header:ce-source}|{header:ce-id}'"}),
    # As a whole: what is in a batch are events for an inbox.
    Case("cloudevents: a batch under the key of its first event", [
        ("cloudevents/batch.http", "executed"), ("cloudevents/batch.http", "replayed")],
        {"key": "'{json:/0/source}|{json:/0/id}'"}),
    Case("cloudevents: an empty batch is nothing to remember", [
        ("cloudevents/batch_empty.http", "unprotected"), ("cloudevents/batch_empty.http", "unprotected")],
        {"key": "'{json:/0/source}|{json:/0/id}'", "missing": "pass"}, effects=2),
    Case("cloudevents: a handshake passes", [
        ("cloudevents/webhook_validation.http", "passed"), ("cloudevents/webhook_validation.http", "passed")], effects=2),
    Case("standard webhooks: a retry has the id and a new signature", [
        ("standard-webhooks/event.http", "executed"), ("standard-webhooks/event_retry.http", "replayed")],
        {"key": "header:webhook-id"}),

    # --- Jobs, builds, steps. ---
    Case("a job that fires twice in the night clocks go back runs once", [
        ("internal/cron_reconcile_fold_1.http", "executed"), ("internal/cron_reconcile_fold_2.http", "replayed"),
        ("internal/cron_reconcile_spring_catch_up.http", "executed")], {"ignore": "[/fired_at]"}, effects=2),
    Case("two triggers deploy one commit once", [
        ("internal/ci_deploy_push.http", "executed"), ("internal/ci_deploy_dispatch.http", "replayed")],
        {"key": DEPLOY, "ignore": "[/trigger]"}),
    Case("a batch repeated as a whole is replayed", [
        ("internal/batch_per_item.http", "executed"), ("internal/batch_per_item.http", "replayed")]),
    # Their order is nothing a gateway knows of: an inbox holds the second until the first has happened.
    Case("steps have keys of their own", [
        ("internal/step2_before_step1.http", "executed"), ("internal/step1.http", "executed"),
        ("internal/step3_cycle.http", "executed"), ("internal/step1.http", "replayed 2")], effects=3),
]


def content(file, edits=()):
    data = (CORPUS / file).read_bytes()
    for old, new in edits:
        assert data.count(old) >= 1, f"{file} does not hold {old}"
        data = data.replace(old, new)
    return data


def send(gateway, data, words):
    """Send the bytes; the answers, once it was seen that the connection stays or ends as the last word says."""
    method = data.split(b" ", 1)[0].decode()
    with gateway.connect() as connection:
        connection.send(data)
        answers = [connection.receive(method) for _ in words]
        if PROBLEMS.get(words[-1], (0, 0, False))[2]:
            assert connection.is_closed_by_peer()
        else:
            assert connection.request("GET", "/alive").status == 201
        return answers


def check(word, answer, executions):
    """`executions` are the bodies of the case's executed answers so far."""
    kind, _, which = word.partition(" ")
    if kind in PROBLEMS:
        status, marker, _ = PROBLEMS[kind]
        assert (answer.problem, answer.status, answer.marker) == (kind, status, marker)
        return
    assert answer.problem is None, answer.body
    assert answer.marker == (None if kind == "passed" else kind)
    if kind == "executed":
        executions.append(answer.body)
    elif kind == "replayed":
        assert answer.get("Idempotent-Replayed") == "true"
        assert answer.body == executions[int(which or 1) - 1]


def forwarded(data):
    """Target and body that the upstream is to see for the first request in the bytes."""
    head, body = data.split(b"\r\n\r\n", 1)
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return head.split(b" ", 2)[1], body[: int(length[1]) if length else 0]


def effects(upstream):
    return [r for r in upstream.effects() if r.target != "/alive"]


def numbered(upstream):
    return lambda r: Answer(201, [], b"%d" % len(effects(upstream)))


@pytest.mark.parametrize("case", EDGE + SCENARIOS, ids=lambda case: case.name)
def test_a_request_from_the_field(start, upstream, case):
    gateway = start(config_for(upstream, **case.route))
    plain = numbered(upstream)
    upstream.answer = lambda r: case.answer if case.answer and r.target != "/alive" else plain(r)
    executions = []
    for file, *rest in case.steps:
        edits, words = (rest[0], rest[1:]) if isinstance(rest[0], list) else ((), rest)
        answers = send(gateway, content(file, edits), words)
        for word, answer in zip(words, answers, strict=True):
            check(word, answer, executions)
            if case.answer and answer.problem is None:
                assert (answer.status, answer.body) == (case.answer.status, case.answer.body)
                assert set(case.answer.headers) <= set(answer.headers)
    assert len(effects(upstream)) == case.effects
    if case in EDGE:
        assert all((r.target.encode(), r.body) == forwarded(content(case.steps[0][0])) for r in effects(upstream))


def test_every_file_has_its_expectation():
    files = {str(p.relative_to(CORPUS)) for p in CORPUS.rglob("*.http")}
    used = {step[0] for case in EDGE + SCENARIOS for step in case.steps}
    assert files == used
    assert {f"edge/{case.name}.http" for case in EDGE} == {f for f in files if f.startswith("edge/")}


def test_a_retry_during_the_first_attaches_to_it(start, upstream):
    gateway = start(config_for(upstream, key="json:/event_id"))
    release = threading.Event()
    upstream.answer = Answer(200, [], b"ok", wait=release)
    answers = {}

    def deliver(file):
        with gateway.connect() as connection:
            connection.send(content(file))
            answers[file] = connection.receive()

    names = ["slack/event_message.http", "slack/event_message_retry1.http"]
    threads = [threading.Thread(target=deliver, args=(name,)) for name in names]
    threads[0].start()
    wait_until(upstream.effects, "the first runs")
    threads[1].start()
    wait_until(lambda: gateway.metric("hapax_waiters") == 1, "the retry waits")
    release.set()
    for thread in threads:
        thread.join()
    assert [answers[n].marker for n in names] == ["executed", "attached"]
    assert [answers[n].body for n in names] == [b"ok", b"ok"]
    assert len(upstream.effects()) == 1


def test_a_request_cut_at_any_byte_has_no_effect(start, upstream):
    """Whatever is missing, of head or body: nothing is forwarded, and the key stays free."""
    gateway = start(config_for(upstream))
    data = content("edge/base.http")
    for cut in range(len(data)):
        with gateway.connect() as connection:
            connection.send(data[:cut])
    with gateway.connect() as connection:
        connection.send(data)
        assert connection.receive().marker == "executed"
    assert len(upstream.effects()) == 1


def test_a_request_in_pieces_of_one_byte_is_the_same_request(start, upstream):
    gateway = start(config_for(upstream))
    with gateway.connect() as connection:
        for byte in content("edge/base.http"):
            connection.send(bytes([byte]))
        first = connection.receive()
        connection.send(content("edge/base.http"))
        second = connection.receive()
    assert (first.marker, second.marker) == ("executed", "replayed")
