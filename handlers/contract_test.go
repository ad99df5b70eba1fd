package handlers

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/servicetest"
)

// The contract's field lists, as it writes them: `|null` may be null, `[]` is a list, `(a|b)` are
// the values that there are, `{…}` the fields of an object, `?` may be absent. Where it names a
// record by a long id, `id` is added.
const (
	pageShape    = "pagination{cursor|null,has_more,count,limit}"
	errorShape   = "error{code,message,details?[{field,code,message}],request_id,retry_after?}"
	accountShape = `id name email plan(startup|enterprise) status(active|suspended) domains_limit domains_used email_users_limit|null email_users_used
		team_users_limit team_users_used webhooks_limit(10) webhooks_used universal_inbox_enabled warmup_phrases[] default_dmarc(v=DMARC1; p=reject)
		rate_limit{per_minute,burst} nameservers[] mail{hostname,smtp_host,smtp_port,imap_host,imap_port,relay|null} registrars[]
		api_token{id,name,permissions[],expires_at|null} user{id,email,role}|null version created_at`
	usageShape = `domains{used,limit|null} email_users{used,limit|null} team_users{used,limit|null} webhooks{used,limit|null} api_tokens{used,limit|null}
		storage{used_bytes,limit_bytes|null,messages} messages{sent_today,sent_30d,received_30d,bounced_30d,complained_30d,queued}
		rate_limit{limit,remaining,reset} daily[]{date,sent,received,bounced,complained} as_of`
	tokenShape = `id name token_prefix permissions[](read|write|purchase|admin) created_by created_at expires_at|null last_used_at|null last_used_ip|null
		kind(api|mcp|oauth|session) client_name|null mailboxes[]|null ` + policyShape
	domainShape = `id domain_id domain domain_unicode status(pending|pending_ns|pending_dns_records|in_progress|complete|error|deleting) status_detail|null
		error{code,message}|null dns_provider(builtin|cloudflare|manual|external) source(connected|registered) registrar|null expires_at|null auto_renew
		nameservers[] ns_status(pending|verified|lost|not_required) dns_status(pending|propagating|complete|failed)
		sending_paused{reason(bounces|complaints),at}|null tls_policy(opportunistic|required) sends_elsewhere[{host|null,network|null,selector}]
		dns_health{status(healthy|degraded|failing|unknown),issues[{code,purpose,host,message}],checked_at|null,failing_since|null} dkim_selector|null
		dnssec{status(unknown|unpublished|secure|bogus),ds[{key_tag,algorithm,digest_type,digest,value}],dnskey}|null
		dmarc_override{value,updated_at}|null redirect_url|null redirect{url,permanent,preserve_path}|null forward_address|null catch_all|null sending_mode(direct|relay) relay|null list_unsubscribe email_users_count tags[]
		notes|null job_id|null created_at updated_at completed_at|null`
	connectShape = `domains[{domain,domain_id|null,status(created|already_exists|error),dns_provider,nameservers[],error|null}] nameservers[] domains_used
		domain_limit edge_mode`
	customShape = "id record_id name fqdn type(TXT|CNAME|A|AAAA) value ttl status(active|pending|error) error|null created_at updated_at"
	nsShape     = `domains[{domain,domain_id|null,status(verified|failed|not_found|already_complete|error),message,verified,nameservers[],current_ns[]}]
		all_verified`
	dnsStatusShape = `domain_id domain dns_provider status(pending|propagating|complete|failed) ready nameservers{expected[],actual[],verified}
		records[{purpose(MX|SPF|DKIM|DMARC|A|TRACKING|MTA_STS|TLSRPT|AUTOCONFIG),type,host,critical,verified,expected,actual|null,error|null}]
		summary{mx,spf,dkim,dmarc} checked_at next_check_at|null cached`
	dnsRecordsShape = "status(ready) domain records[{type(A|MX|TXT),host,value,ttl,purpose,priority|null}]"
	verifyShape     = "domain all_verified critical_verified records[{type,host,purpose,verified,expected,actual|null}]"
	sendPolicyShape = "send(allow|reply_only|approval|deny) allowed_recipients[]"
	policyShape     = "own_words policy{" + sendPolicyShape + " trusted_senders[] taint taint_seconds|null} tainted{since,user_id|null,thread_id|null}|null"
	credentialShape = "id name protocols[] allowed_networks|null expires_at|null last_used_at|null last_used_ip|null created_at " + policyShape
	inboxShape      = "inbox{" + userShape + "} credential{" + credentialShape + "} password token mcp_url smtp{" + serverShape + "} imap{" + serverShape + "} expires_at"
	serverShape     = "host port security(tls|starttls|none)"
	userShape       = `id user_id email username domain domain_id name status(pending|active|suspended|error|deleting) error{code,message}|null type(hosted|external)
		aliases[] send_as[] signature|null recovery_email|null recovery_confirmed forward_keep_copy daily_send_limit|null sent_today sending_paused{reason(bounces|complaints),at}|null smtp_host smtp_port smtp_security(tls|starttls|none) imap_host imap_port imap_security(tls|starttls|none) footer|null
		forward_to|null relay|null quota_bytes|null used_bytes unread_count last_sync_at|null last_login_at|null
		send_policy{` + sendPolicyShape + `} expires_at|null created_at updated_at`
	bulkShape     = "domain created failed users[{" + userShape + ",password,password_generated}] errors[{index,username,code,message}] job_id|null"
	bulkGoneShape = "queued failed errors[{user_id|null,code,message}] job_id|null"
	messageShape  = `id uid uid_validity user_id mailbox recipient folder email_id message_id thread_id in_reply_to|null references[] from from_email from_name|null to[] cc[] bcc[]
		reply_to[] subject body_preview received_at date|null is_read is_answered is_flagged has_attachments
		attachments[{index,filename,content_type,size,content_id|null}] size is_warmup is_auto_reply is_bounce
		auth{spf(pass|fail|softfail|neutral|none|temperror|permerror),dkim(pass|fail|softfail|neutral|none|temperror|permerror),dmarc(pass|fail|softfail|neutral|none|temperror|permerror),reason|null,dmarc_policy(none|quarantine|reject)|null,dmarc_rfc7489{result,policy(none|quarantine|reject)|null}|null}
		original_message_id|null answered_by{kind(team|mailbox|token),name,at}|null spam{score,verdict(ham|unsure|spam),reasons[]{code,text,weight}}|null withheld`
	detailShape = messageShape + " text|null html|null reply_text|null headers[{name,value}] truncated invitation{summary,starts_at|null,ends_at|null,organizer,answer(accepted|tentative|declined)|null}|null"
	sentShape   = `success message_id status(queued|scheduled|held) approval_id|null user_id from recipients[{id,email,status(queued|scheduled|suppressed|held),transport}]
		transport(direct|relay|local|capture|simulator|mixed) queued_at send_at|null`
	markedShape  = "message message_id uid mailbox is_read is_flagged"
	removedShape = "message message_id uid mailbox"
	webhookShape = `id url events[] description|null status(enabled|disabled) disabled_reason(null|manual|consecutive_failures|gone) disabled_at|null
		consecutive_failures api_version secret_hint last_delivery_at|null last_success_at|null created_at updated_at`
	secretShape   = "id secret previous_secret_expires_at|null"
	deliveryShape = `id event_id event_type attempt outcome(success|failed|pending) http_status|null error|null
		error_code(null|timeout|dns|connect|tls|http_status|blocked_address) duration_ms response_excerpt|null url trigger(event|retry|test|redeliver)
		attempted_at next_attempt_at|null`
	lookupShape = `original_message_id|null provider_message_ids[]
		data[{original_message_id,provider_message_id,provider,recipient,sender,sending_domain,relayed_at}] count`
	logShape = `id message_id user_id sender recipient subject status(queued|scheduled|held|sent|delivered|relayed|captured|deferred|bounced|complained|suppressed|cancelled|rejected)
		transport provider|null provider_message_id|null attempts last_response|null next_attempt_at|null send_at|null tags require_tls approval_id|null queued_at updated_at`
	messageTemplateShape = "id name subject text|null html|null variables[] created_at updated_at"
	windowShape          = "{sent,deferred,bounced,complained,bounce_rate,complaint_rate}"
	windowsShape         = "windows{1d" + windowShape + ",7d" + windowShape + ",30d" + windowShape + "}"
	pausedShape          = "sending_paused{reason(bounces|complaints),at}|null"
	reputationShape      = "account{" + windowsShape + "} domains[{domain_id,domain," + pausedShape + "," + windowsShape + "}] mailboxes[{user_id,email," + pausedShape + "," + windowsShape + "}] destinations[{operator,domains[],blocked{reply,advice,at}|null," + windowsShape + "}] as_of"
	jobShape             = `id job_id type status(queued|in_progress|completed|error|cancelled) status_detail|null progress{completed,total,percent}|null
		steps[{name,status(queued|in_progress|completed|error|skipped),error|null,at|null}] resource{type,id,name}|null result|null error{code,message}|null
		attempts next_attempt_at|null created_by created_at started_at|null updated_at completed_at|null`
	dmarcReportShape = `id report_id org_name email|null date_begin date_end policy{domain,p(none|quarantine|reject),sp(none|quarantine|reject),np(none|quarantine|reject)|null,adkim(r|s),aspf(r|s),testing,discovery_method|null,pct}
		records[{source_ip,count,disposition(none|quarantine|reject),dkim(pass|fail),spf(pass|fail),header_from,envelope_from|null,envelope_to|null,
		reasons[{type,comment|null}],dkim_results[{domain,selector|null,result}],spf_results[{domain,scope|null,result}]}] records_omitted
		totals{messages,passed,failed} authenticated received_from|null received_at`
	tlsReportShape = `id report_id org_name contact|null date_begin date_end policies[{type(sts|tlsa|no-policy-found),domain,strings[],mx_hosts[],
		successful,failed,failures[{result_type,sessions,sending_ip|null,mx_host|null,receiving_ip|null,reason|null}]}] totals{successful,failed}
		authenticated received_from|null received_at`
	suppressionShape = "email reason(bounce|complaint|manual) message_id|null created_at"
	approvalShape    = `approval_id status(pending|approved|rejected|expired) reason(policy|tainted) via(api|mcp|smtp|rule) token{id,name}|null user_id|null
		email to[] cc[] bcc[] size content_hash message_id created_at expires_at decided_at|null decided_by{id,name}|null note|null`
	auditShape = `id action actor{type(user|token|mailbox|operator|system),id|null,name} via(api|mcp|dashboard|command) ip|null target{type,id,name}|null fields[] count
		request_id|null created_at`
	ruleShape = `id name enabled position match(all|any) conditions[{field,op,value|null,header?,not?}]
		actions[{type,value|null}] created_at updated_at`
	vacationShape = "enabled subject|null text from|null starts_at|null ends_at|null"
	domainEvent   = "domain_id domain status dns_provider source job_id|null "
	userEvent     = "user_id email username domain domain_id name "
	receivedEvent = `user_id mailbox recipient sender sender_name from to[] cc[] subject message_id in_reply_to|null references[] thread_id folder uid
		received_at has_attachments size is_auto_reply to_count cc_count references_count original_message_id|null`
	failedEvent = "domain_id domain issues[{code,purpose,type,host,expected,actual|null,message}] failing_since checked_at"
)

func long(record string) string { return "data[{" + record + "}] " + pageShape }

func eventList(data string) string {
	return long("id object(event) type api_version created account_id data{" + data + "}")
}

// answers are requests in the order in which they are sent, with the status and the fields of what
// comes back. In paths and bodies {name} stands for an id.
var answers = []struct {
	method, path, body string
	status             int
	shape              string
}{
	{"GET", "/v1/account", "", 200, accountShape},
	{"PATCH", "/v1/account", `{"warmup_phrases":["warm"]}`, 200, accountShape},
	{"GET", "/v1/account/usage", "", 200, usageShape},
	{"POST", "/v1/auth/tokens", `{"expires_in_days":1}`, 201, tokenShape + " token"},
	{"GET", "/v1/auth/tokens", "", 200, "data[{" + tokenShape + "}] count"},
	{"DELETE", "/v1/auth/tokens/{spare}", "", 200, "message id"},
	{"POST", "/v1/domains/connect", `{"domains":["outside.test","bad name"],"external":true}`, 200, connectShape},
	{"POST", "/v1/domains/check-ns", `{"domains":["outside.test","nowhere.test"]}`, 200, nsShape},
	{"GET", "/v1/domains", "", 200, long(domainShape)},
	{"GET", "/v1/domains/{builtin}", "", 200, domainShape},
	{"POST", "/v1/domains/connect", `{"domains":["nozone.test","atedge.test"],"edge_api_token":"edge-token"}`, 200, connectShape},
	{"GET", "/v1/domains/{edge}", "", 200, domainShape},
	{"GET", "/v1/domains/{edge}/dns-status", "", 200, dnsStatusShape},
	{"POST", "/v1/domains/{edge}/custom-dns-records", `{"name":"x","type":"TXT","value":"y"}`, 200, "record{" + customShape + "}"},
	{"GET", "/v1/domains/{edge}/custom-dns-records", "", 200, "domain dns_provider(cloudflare) records[{" + customShape + "}] dmarc_override{value,updated_at}|null"},
	{"PUT", "/v1/domains/{edge}/dmarc", `{"value":"v=DMARC1; p=none"}`, 200, "dmarc_override{value,updated_at}"},
	{"DELETE", "/v1/domains/{edge}/dmarc", "", 200, "reset applied_default"},
	{"PATCH", "/v1/domains/{builtin}", `{"notes":"n"}`, 200, domainShape},
	{"GET", "/v1/domains/{builtin}/dns-status", "", 200, dnsStatusShape},
	{"GET", "/v1/domains/{builtin}/email-users", "", 200, "data[] " + pageShape},
	{"GET", "/v1/domains/{builtin}/dmarc-reports", "", 200, long(dmarcReportShape)},
	{"GET", "/v1/domains/{builtin}/tls-reports?org=far&date_from=2026-11-20&date_to=2026-11-20", "", 200, long(tlsReportShape)},
	{"GET", "/v1/domains/{manual}/dns-status?refresh=true", "", 200, dnsStatusShape},
	{"GET", "/v1/domains/{manual}/dns-records", "", 200, dnsRecordsShape},
	{"POST", "/v1/domains/{manual}/verify-dns", "", 200, verifyShape},
	{"DELETE", "/v1/domains/{manual}", "", 202, jobShape},
	{"POST", "/v1/email-users/{ann}/import", `{"imap":{"host":"127.0.0.1","port":1,"security":"tls","username":"a","password":"b"}}`, 202, jobShape},
	{"POST", "/v1/email-users/{ann}/export", `{"format":"maildir"}`, 202, jobShape},
	{"POST", "/v1/email-users", `{"username":"cleo","domain":"boxes.test"}`, 201, userShape + " password password_generated"},
	{"POST", "/v1/email-users/bulk", `{"domain":"boxes.test","users":[{"username":"dan"},{"username":"abuse"}]}`, 200, bulkShape},
	{"GET", "/v1/email-users", "", 200, long(userShape)},
	{"GET", "/v1/email-users/{ann}", "", 200, userShape},
	{"PATCH", "/v1/email-users/{ann}", `{"name":"Ann"}`, 200, userShape},
	{"GET", "/v1/domains/{hosted}/email-users", "", 200, long(userShape)},
	{"POST", "/v1/inboxes", `{"domain":"boxes.test","username":"short","policy":{"send":"reply_only","taint":true,"taint_seconds":3600}}`, 201, inboxShape},
	{"POST", "/v1/auth/tokens", `{"mailboxes":["{ann}"],"policy":{"trusted_senders":["@far.test"]}}`, 201, tokenShape + " token"},
	{"POST", "/v1/email-users/{ann}/credentials", `{"name":"Phone","policy":{"send":"approval"}}`, 201, credentialShape + " username password"},
	{"GET", "/v1/email-users/{ann}/credentials", "", 200, "data[{" + credentialShape + "}] count"},
	{"POST", "/v1/domains/{hosted}/smtp-credentials", `{"name":"Shop","policy":{"send":"deny"}}`, 201, credentialShape + " username password"},
	{"DELETE", "/v1/email-users/bulk", `{"emails":["dan@boxes.test","gone@boxes.test"]}`, 200, bulkGoneShape},
	{"POST", "/v1/email-users/bulk-delete", `{"user_ids":["eu_gone"]}`, 200, bulkGoneShape},
	{"DELETE", "/v1/email-users/{ben}", "", 200, "message user_id job_id"},
	{"POST", "/v1/email-users/{ann}/inbox/send", `{"to":["ann@boxes.test","far@far.test"],"subject":"s","text":"t"}`, 200, sentShape},
	{"GET", "/v1/email-users/{ann}/inbox", "", 200, long(messageShape) + " synced_at|null"},
	{"GET", "/v1/inbox", "", 200, long(messageShape) + " synced_at|null"},
	{"GET", "/v1/email-users/{cat}/inbox/wait?since=2001-02-03", "", 200, "message{" + messageShape + " reply_text|null} code|null links[{url,text,same_domain}] verified_domain|null now"},
	{"GET", "/v1/inbox/wait?timeout=1&subject=none", "", 200, "message|null code|null links[] verified_domain|null now"},
	{"GET", "/v1/email-users/{ann}/inbox/1", "", 200, detailShape},
	{"GET", "/v1/inbox/1?mailbox=ann@boxes.test", "", 200, detailShape},
	{"POST", "/v1/email-users/{ann}/rules", `{"name":"Far","conditions":[{"field":"from","op":"contains","value":"far"},{"field":"size","op":"above","value":1},{"field":"header","op":"exists","header":"X-Far","not":true}],"actions":[{"type":"move","value":"archive"}]}`, 201, ruleShape},
	{"GET", "/v1/email-users/{ann}/rules", "", 200, "data[{" + ruleShape + "}] count"},
	{"POST", "/v1/email-users/{ann}/rules/test", `{"message_id":"1"}`, 200, "matched[] actions[{rule_id,type,value|null}] folder|null copies[] flags[] skipped[]"},
	{"PATCH", "/v1/email-users/{ann}/rules/{rule}", `{"enabled":false}`, 200, ruleShape},
	{"DELETE", "/v1/email-users/{ann}/rules/{rule}", "", 200, "message id"},
	{"GET", "/v1/email-users/{ann}/vacation", "", 200, vacationShape},
	{"PUT", "/v1/email-users/{ann}/vacation", `{"enabled":true,"text":"Away.","ends_at":"2036-01-02T00:00:00Z"}`, 200, vacationShape},
	{"DELETE", "/v1/email-users/{ann}/vacation", "", 200, "message user_id"},
	{"PATCH", "/v1/email-users/{ann}/inbox/1", `{"is_read":true}`, 200, markedShape},
	{"PATCH", "/v1/inbox/1?mailbox=ann@boxes.test", `{"read":false}`, 200, markedShape},
	{"PATCH", "/v1/inbox/1?mailbox=ann@boxes.test", `{"is_flagged":true}`, 200, markedShape},
	{"POST", "/v1/inbox/bulk-mark", `{"messages":[{"uid":"2","mailbox":"ann@boxes.test"},{"uid":"99","mailbox":"ann@boxes.test"}],"is_read":true,"is_flagged":true}`, 200, "marked(1) failed(1) errors[{uid,mailbox,error,code}]"},
	{"POST", "/v1/email-users/{ann}/inbox/refresh", "", 200, "message email"},
	{"POST", "/v1/inbox/bulk-delete", `{"messages":[{"uid":"2","mailbox":"ann@boxes.test"},{"uid":"99","mailbox":"ann@boxes.test"}]}`, 200, "deleted(1) failed(1) errors[{uid,mailbox,error,code}]"},
	{"DELETE", "/v1/email-users/{ann}/inbox/1", "", 200, removedShape},
	{"DELETE", "/v1/inbox/3?mailbox=ann@boxes.test", "", 200, removedShape},
	{"POST", "/v1/webhooks", `{"url":"https://127.0.0.1:1/h","events":["*"]}`, 201, webhookShape + " secret"},
	{"GET", "/v1/webhooks", "", 200, "data[{" + webhookShape + "}] count limit(10)"},
	{"GET", "/v1/webhooks/{hook}", "", 200, webhookShape},
	{"PATCH", "/v1/webhooks/{hook}", `{"status":"disabled"}`, 200, webhookShape},
	{"GET", "/v1/webhooks/{hook}/secret", "", 200, secretShape},
	{"POST", "/v1/webhooks/{hook}/rotate-secret", "", 200, secretShape},
	{"POST", "/v1/webhooks/{hook}/test", "", 200, "event_id type(test.ping) queued message"},
	{"GET", "/v1/webhooks/{hook}/deliveries", "", 200, long(deliveryShape)},
	{"POST", "/v1/webhooks/{hook}/deliveries/{ping}/redeliver", "", 200, "event_id webhook_id queued message"},
	{"POST", "/v1/account/universal-inbox", `{"enabled":true}`, 200, "universal_inbox_enabled message"},
	{"POST", "/v1/inbox/refresh", "", 200, "message"},
	{"DELETE", "/v1/webhooks/{hook}", "", 200, "id deleted message"},
	{"GET", "/v1/messages", "", 200, long(logShape)},
	{"GET", "/v1/messages/{sent}", "", 200, logShape + " attempts_log[{at,host|null,ip|null,tls|null,authenticated(dane|mta-sts|certificate|none),code|null,enhanced,reply}]"},
	{"GET", "/v1/messages/lookup?original_message_id=one@boxes.test", "", 200, lookupShape},
	{"GET", "/v1/messages/lookup?provider_message_id=none@far.test", "", 200, "original_message_id|null provider_message_ids[] data[] count(0)"},
	{"POST", "/v1/suppressions", `{"email":"no@far.test"}`, 201, suppressionShape},
	{"POST", "/v1/suppressions/import", `{"emails":["no@far.test","new@far.test","no address"],"reason":"bounce"}`, 200, "added(1) already(1) invalid[]"},
	{"GET", "/v1/reputation", "", 200, reputationShape},
	{"POST", "/v1/message-templates", `{"name":"Hello","subject":"Hello {{name}}","text":"Hello {{ name }}"}`, 201, messageTemplateShape},
	{"GET", "/v1/message-templates", "", 200, long(messageTemplateShape)},
	{"POST", "/v1/email-users/{ann}/inbox/send-batch", `{"message":{"subject":"Hello","text":"Hello {{name}}"},"recipients":[{"to":"bob@boxes.test","variables":{"name":"Bob"}}]}`, 202, jobShape},
	{"POST", "/v1/email-users/{ann}/held", `{"action":"release"}`, 200, "released(0) discarded(0)"},
	{"GET", "/v1/approvals", "", 200, long(approvalShape + " subject preview")},
	{"GET", "/v1/approvals/{held}", "", 200, approvalShape + ` subject preview text|null html|null body_complete headers[{name,value}]
		attachments[{filename,content_type,size}]`},
	{"POST", "/v1/approvals/{held}/reject", `{}`, 403, errorShape},
	{"GET", "/v1/events?type=email.held", "", 200, eventList(approvalShape)},
	{"GET", "/v1/suppressions", "", 200, long(suppressionShape)},
	{"GET", "/v1/jobs", "", 200, long(jobShape)},
	{"GET", "/v1/jobs?job_id={job}", "", 200, jobShape},
	{"GET", "/v1/jobs/{job}?wait=1", "", 200, jobShape},
	{"GET", "/v1/events?type=domain.created", "", 200, eventList(domainEvent + "created_at")},
	{"GET", "/v1/events?type=domain.ready&limit=1", "", 200, eventList(domainEvent + "ready_at")},
	{"GET", "/v1/events?type=domain.dns_failed", "", 200, eventList(failedEvent)},
	{"GET", "/v1/events?type=email_user.created", "", 200, eventList(userEvent + "created_at")},
	{"GET", "/v1/events?type=email_user.deleted", "", 200, eventList(userEvent + "deleted_at")},
	{"GET", "/v1/events?type=email.received", "", 200, eventList(receivedEvent)},
	{"GET", "/v1/events?type=email.rule_matched", "", 200, eventList("rule_id rule_name value|null " + receivedEvent)},
	{"GET", "/v1/events?type=test.ping", "", 200, eventList("webhook_id message sent_at")},
	{"GET", "/v1/events?event_id={ping}", "", 200, eventList("webhook_id message sent_at")},
	{"GET", "/v1/events?event_id=evt_none", "", 200, "data[] pagination{cursor|null,has_more,count(0),limit}"},
	{"GET", "/v1/audit", "", 200, long(auditShape)},
	{"GET", "/v1/domains/none", "", 404, errorShape},
	{"POST", "/v1/email-users", `{}`, 400, errorShape},
}

// TestAnswersHaveTheContractsFields sends a request to every operation and finds fields that are
// missing, extra, or null where the contract has no null.
func TestAnswersHaveTheContractsFields(t *testing.T) {
	b, ids := newContractWorld(t)
	for _, a := range answers {
		r := b.do(a.method, expand(a.path, ids), expand(a.body, ids))
		if r.status != a.status {
			t.Errorf("%s %s: status %d, want %d: %.300s", a.method, a.path, r.status, a.status, r.raw)
			continue
		}
		for _, problem := range compare("", r.json, parseShape(a.shape)) {
			t.Errorf("%s %s: %s", a.method, a.path, problem)
		}
		switch id := r.text("id"); {
		case a.method == "POST" && a.path == "/v1/webhooks":
			ids["hook"] = id
		case strings.HasSuffix(a.path, "{hook}/test"):
			ids["ping"] = r.text("event_id")
			b.until("/v1/webhooks/"+ids["hook"]+"/deliveries", "pagination.count", "1")
		case a.path == "/v1/messages":
			ids["sent"] = r.text("data.0.id")
		case strings.HasSuffix(a.path, "/held"):
			ids["held"] = b.hold(ids["ann"], 1)
		case strings.HasSuffix(a.path, "/send"):
			b.until("/v1/email-users/"+ids["ann"]+"/inbox", "pagination.count", "4")
		case strings.HasPrefix(id, "job_"):
			ids["job"] = id
		case a.path == "/v1/email-users/{ben}":
			b.until("/v1/jobs/"+r.text("job_id"), "status", "completed")
		}
	}
}

// newContractWorld makes something of everything that the answers are about.
func newContractWorld(t *testing.T) (*sandbox, map[string]string) {
	b, world := newWorld(t, servicetest.NewEdge("atedge.test").With(nil))
	ids := map[string]string{"hosted": b.domain, "builtin": b.complete("builtin.test"), "ann": b.box("ann"), "ben": b.box("ben"), "cat": b.box("cat")}
	if err := b.Arrive(t, "a@far.test", "cat@boxes.test", strings.ReplaceAll(waitedFor, "%", "s")); err != nil {
		t.Fatal(err)
	}
	ids["spare"] = b.post("/v1/auth/tokens", nil).is(201).text("id")
	ids["edge"] = b.post("/v1/domains/connect", `{"domains":["atedge.test"],"edge_api_token":"edge-token"}`).is(200).text("domains.0.domain_id")
	b.until("/v1/domains/"+ids["edge"], "status", "complete")
	ids["manual"] = b.post("/v1/domains/connect", `{"domains":["manual.test"],"manual_dns":true}`).is(200).text("domains.0.domain_id")
	b.until("/v1/domains/"+ids["manual"], "status", "pending_dns_records")
	world.Tell("MX", "builtin.test", "10 elsewhere.test")
	for range 2 {
		b.get("/v1/domains/"+ids["builtin"]+"/dns-status?refresh=true").is(200).has("records.1.error", "mismatch")
	}
	for range 3 {
		b.Put(t, "ann@boxes.test", "From: Far <far@far.test>\nTo: ann@boxes.test\nContent-Type: multipart/mixed; boundary=b\n\n"+
			"--b\n\nhello\n--b\nContent-Disposition: attachment; filename=a.txt\n\nfile\n--b--\n", mail{})
	}
	b.Map(t, b.Owner.AccountID, "<one@boxes.test>", "<two@far.test>")
	for _, name := range []string{"ben", "ann"} {
		ids["rule"] = b.post("/v1/email-users/"+ids[name]+"/rules", `{"name":"Tell","actions":[{"type":"webhook","value":"arrived"}]}`).is(201).text("id")
	}
	b.patch("/v1/domains/"+ids["builtin"], `{"catch_all":"ben@boxes.test"}`).is(200)
	for _, file := range []string{servicetest.DMARCFile, servicetest.TLSFile} {
		for _, id := range []string{"one", "two"} {
			if err := b.Arrive(t, "", "postmaster@builtin.test", servicetest.ReportMail("noreply@far.test", file, "builtin.test", id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.ReportsRead(t)
	b.patch("/v1/domains/"+ids["builtin"], `{"catch_all":null}`).is(200)
	return b, ids
}

// hold has messages of a mailbox wait for approval, and gives the approval of the last one.
func (b *sandbox) hold(userID string, messages int) (id string) {
	agent := b.with(b.post("/v1/auth/tokens", `{"name":"agent","policy":{"send":"approval"}}`).is(201).text("token"))
	for range messages {
		id = agent.post("/v1/email-users/"+userID+"/inbox/send", `{"to":"held@far.test","subject":"not in the log","text":"t"}`).is(200).text("approval_id")
	}
	return id
}

func expand(text string, ids map[string]string) string {
	for name, id := range ids {
		text = strings.ReplaceAll(text, "{"+name+"}", id)
	}
	return text
}

// A shape is one field as the contract writes it.
type shape struct {
	name                 string
	optional, null, list bool
	values               []string
	fields               []shape
}

// parseShape reads fields that spaces or commas part, outside brackets.
func parseShape(text string) (out []shape) {
	depth, start := 0, 0
	for i, r := range text + " " {
		switch {
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			depth--
		case depth == 0 && strings.ContainsRune(", \n\t", r):
			if i > start {
				out = append(out, parseField(text[start:i]))
			}
			start = i + 1
		}
	}
	return out
}

func parseField(text string) shape {
	text, null := strings.CutSuffix(text, "|null")
	end := strings.IndexAny(text+"(", "?([{")
	s := shape{name: text[:end], null: null}
	rest := text[end:]
	rest, s.optional = strings.CutPrefix(rest, "?")
	s.list = strings.HasPrefix(rest, "[")
	if open := strings.IndexByte(rest, '{'); open >= 0 {
		s.fields = parseShape(rest[open+1 : strings.LastIndexByte(rest, '}')])
	} else if open := strings.IndexByte(rest, '('); open >= 0 {
		s.values = strings.Split(rest[open+1:strings.LastIndexByte(rest, ')')], "|")
		s.null = s.null || slices.Contains(s.values, "null")
	}
	return s
}

// compare says how a value differs from the fields of an object.
func compare(at string, v any, fields []shape) (problems []string) {
	object, ok := v.(map[string]any)
	if !ok {
		return []string{at + " is no object"}
	}
	unknown := maps.Clone(object)
	for _, f := range fields {
		delete(unknown, f.name)
		here := strings.TrimPrefix(at+"."+f.name, ".")
		switch value, there := object[f.name]; {
		case !there && !f.optional:
			problems = append(problems, here+" is missing")
		case there && value == nil && !f.null:
			problems = append(problems, here+" is null")
		case value != nil:
			problems = append(problems, f.compare(here, value)...)
		}
	}
	for name := range unknown {
		problems = append(problems, strings.TrimPrefix(at+"."+name, ".")+" is extra")
	}
	return problems
}

var wireTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

func (f shape) compare(at string, value any) (problems []string) {
	items, isList := value.([]any)
	if isList != f.list {
		return []string{at + " is a list, or ought to be one"}
	}
	if !isList {
		items = []any{value}
	}
	if len(items) == 0 && f.fields != nil && f.name == "data" {
		return []string{at + " is empty, so that nothing is compared"}
	}
	for _, item := range items {
		switch {
		case f.fields != nil:
			problems = append(problems, compare(at, item, f.fields)...)
		case f.values != nil && !slices.Contains(f.values, fmt.Sprint(item)):
			problems = append(problems, fmt.Sprintf("%s is %v, none of %v", at, item, f.values))
		case (strings.HasSuffix(f.name, "_at") || f.name == "as_of" || f.name == "created") && !isNumber(item) && !wireTime.MatchString(fmt.Sprint(item)):
			problems = append(problems, fmt.Sprintf("%s is %v, no time", at, item))
		}
	}
	return problems
}

func isNumber(v any) bool { _, ok := v.(float64); return ok }

// The contract's matrices: who may do what, with which permission.
var permitted = []struct{ scope, roles, operations string }{
	{"read", "owner admin member", `get_account get_usage list_team_users list_tokens list_domains get_domain get_dns_status get_dns_records search_domain
		search_domains_bulk suggest_domains check_provider list_custom_dns_records list_domain_email_users list_email_users get_email_user generate_names
		list_templates get_template list_email_user_inbox get_message get_message_raw get_message_attachment list_inbox get_inbox_message list_webhooks
		get_webhook list_webhook_deliveries lookup_message list_jobs get_job list_export_formats list_events list_messages get_sent_message list_suppressions
		list_dmarc_reports list_tls_reports list_message_templates get_message_template preview_message_template get_reputation list_groups get_group list_folders suggest_addresses list_rules test_rules get_vacation get_me wait_for_message wait_for_any_message`},
	{"write", "owner admin member", `create_token delete_token check_nameservers verify_dns create_template update_template delete_template
		send_email refresh_email_user_inbox delete_message mark_message refresh_inbox bulk_delete_messages bulk_mark_messages mark_inbox_message delete_inbox_message
		retry_message cancel_message create_suppression delete_suppression create_message_template update_message_template delete_message_template
		send_email_batch update_scheduled_message create_draft update_draft send_draft create_folder update_folder delete_folder bulk_move_messages unsubscribe_message answer_invitation`},
	{"write", "owner admin", `update_account connect_domains setup_domain update_domain delete_domain create_custom_dns_record update_custom_dns_record
		delete_custom_dns_record set_dmarc reset_dmarc set_redirect delete_redirect set_forward delete_forward create_email_user create_email_users_bulk
		delete_email_users_bulk update_email_user delete_email_user create_webhook update_webhook delete_webhook get_webhook_secret rotate_webhook_secret
		test_webhook redeliver_event set_universal_inbox create_export export_messages import_messages import_suppressions release_held_messages create_group update_group delete_group
		create_credential delete_credential create_smtp_credential delete_smtp_credential create_recovery_link create_rule update_rule delete_rule set_vacation delete_vacation
		approve_message reject_message create_inbox`},
	{"read", "owner", "get_health"}, // of the first account alone
	{"read", "owner admin", "list_audit list_credentials list_smtp_credentials list_approvals get_approval get_approval_raw"},
	{"write", "mailbox", "update_me change_my_password"},
	{"admin", "owner admin", "invite_team_user delete_team_user clear_token_taint clear_credential_taint clear_smtp_credential_taint"},
}

// holds are the scopes that a token's one permission gives.
var holds = map[string]string{"read": "read", "write": "read write", "purchase": "read write purchase", "admin": "read write purchase admin"}

// ownRules are operations whose permission depends on whom they are about.
var ownRules = []string{"update_team_user"}

// TestWhoMayDoWhat sends every operation of the table, about things that there are not, with every
// sort of token of every role.
func TestWhoMayDoWhat(t *testing.T) {
	b := newSandbox(t, nil)
	dead := b.Account(t, "expired@example.test").AccountID
	tokens := map[string]string{}
	for _, role := range api.Everyone {
		for scope := range holds {
			tokens[role+" "+scope] = b.Token(t, b.Owner.AccountID, role, scope)
		}
		revoked := b.Token(t, b.Owner.AccountID, role, "write")
		id := b.with(revoked).get("/v1/account").is(200).text("api_token.id")
		b.with(revoked).remove("/v1/auth/tokens/" + id).is(200)
		tokens[role+" revoked"], tokens[role+" expired"] = revoked, b.Token(t, dead, role, "admin")
	}
	b.ExpireTokens(t, dead)
	b.Inbox.EndWaiting() // those who may wait get their answer at once
	for i, o := range b.server.ops {
		if i%50 == 49 {
			b.pass(time.Minute) // in which so many bad tokens are too many
		}
		path := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(o.Path, "none")
		b.with("").do(o.Method, path, nil).fails(401, "unauthorized")
		b.with("mst_none").do(o.Method, path, nil).fails(401, "unauthorized")
		found := false
		for _, row := range permitted {
			if slices.Contains(strings.Fields(row.operations), o.Name) {
				found = true
				for who, token := range tokens {
					mayDo(t, b.with(token).do(o.Method, path, nil), o, who, row.scope, row.roles)
				}
			}
		}
		if !found && !slices.Contains(ownRules, o.Name) {
			t.Errorf("%s is in none of the contract's matrices", o.Name)
		}
	}
}

// mayDo checks an answer to a token of who: a role and a permission, or what is wrong with it.
// Scope comes before role.
func mayDo(t *testing.T, r *reply, o api.Operation, who, scope, roles string) {
	t.Helper()
	role, kind, _ := strings.Cut(who, " ")
	status, code := 0, ""
	switch {
	case kind == "revoked" || kind == "expired":
		status, code = http.StatusUnauthorized, "token_"+kind
	case !slices.Contains(strings.Fields(holds[kind]), scope):
		status, code = http.StatusForbidden, "insufficient_scope"
	case !slices.Contains(strings.Fields(roles), role):
		status, code = http.StatusForbidden, "forbidden_role"
	case o.Person: // no token is one
		status, code = http.StatusForbidden, "person_required"
	case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden || r.status >= 500:
		t.Errorf("%s by %s: %d %s, though the contract allows it", o.Name, who, r.status, r.raw)
	}
	if status != 0 && (r.status != status || r.text("error.code") != code) {
		t.Errorf("%s by %s: %d %s, want %d %s", o.Name, who, r.status, r.text("error.code"), status, code)
	}
	if limited := r.header.Get("X-RateLimit-Limit") != ""; limited != (status != http.StatusUnauthorized) || r.header.Get("X-Request-Id") == "" {
		t.Errorf("%s by %s: %d with the headers %v", o.Name, who, r.status, r.header)
	}
}

// longLists are the lists that come in pages, with their default and their maximum.
var longLists = []struct {
	path            string
	byDefault, most string
}{
	{"/v1/domains", "25", "100"},
	{"/v1/email-users", "25", "100"},
	{"/v1/domains/{builtin}/dmarc-reports", "25", "100"},
	{"/v1/domains/{builtin}/tls-reports", "25", "100"},
	{"/v1/domains/{hosted}/email-users", "25", "100"},
	{"/v1/email-users/{ann}/inbox", "25", "100"},
	{"/v1/inbox", "100", "200"},
	{"/v1/webhooks/{hook}/deliveries", "25", "100"},
	{"/v1/events", "25", "100"},
	{"/v1/messages", "25", "100"},
	{"/v1/suppressions", "25", "100"},
	{"/v1/jobs", "25", "100"},
	{"/v1/audit", "25", "100"},
	{"/v1/approvals", "25", "100"},
}

// TestPagesOfLongLists walks every long list by ones, and shows its cursors to lists that they are
// not of.
func TestPagesOfLongLists(t *testing.T) {
	b, ids := newContractWorld(t)
	ids["hook"] = b.post("/v1/webhooks", `{"url":"https://127.0.0.1:1/h","events":["domain.ready"]}`).is(201).text("id")
	for range 2 {
		b.post("/v1/webhooks/"+ids["hook"]+"/test", nil).is(200)
		b.post("/v1/email-users/"+ids["ann"]+"/inbox/send", `{"to":"far@far.test","subject":"s","text":"t"}`).is(200)
	}
	b.until("/v1/webhooks/"+ids["hook"]+"/deliveries", "pagination.count", "2")
	b.post("/v1/suppressions", `{"email":"a@far.test"}`).is(201)
	b.post("/v1/suppressions", `{"email":"b@far.test"}`).is(201)
	b.hold(ids["ann"], 2)
	other := b.with(b.Account(t, "other@example.test").Token)
	foreign := ""
	for _, l := range longLists {
		path := expand(l.path, ids)
		whole := b.get(path).is(200).has("pagination.limit", l.byDefault, "pagination.has_more", "false", "pagination.cursor", "<nil>")
		for _, clamped := range []string{l.most, "201", "99999999999999999999"} {
			b.get(path+"?limit="+clamped).is(200).has("pagination.limit", l.most)
		}
		for _, limit := range []string{"0", "-1", "x", "", "1.0", "1e1", "%201"} {
			b.get(path+"?limit="+limit).fails(400, "validation_error").has("error.details.0.field", "limit")
		}
		for _, cursor := range []string{"x", "%00", "%ff", "AAAA", strings.Repeat("A", 5000), foreign} {
			if cursor != "" {
				b.get(path+"?cursor="+cursor).fails(400, "invalid_cursor")
			}
		}
		first := b.get(path + "?limit=1").is(200)
		next := first.text("pagination.cursor")
		bent := "A" + next[1:]
		if bent == next {
			bent = "B" + next[1:]
		}
		b.get(path+"?limit=1&cursor="+bent).fails(400, "invalid_cursor")
		if !strings.Contains(path, "_") { // of things that the other account has too
			other.get(path+"?cursor="+next).fails(400, "invalid_cursor")
		}
		field := "id"
		switch l.path {
		case "/v1/suppressions":
			field = "email"
		case "/v1/approvals":
			field = "approval_id"
		}
		walked := first.list("data", field)
		for next != "<nil>" {
			page := b.get(path+"?limit=1&cursor="+next).is(200).has("pagination.count", "1")
			walked, next = append(walked, page.list("data", field)...), page.text("pagination.cursor")
		}
		if want := whole.list("data", field); len(want) < 2 || !slices.Equal(walked, want) {
			t.Errorf("%s by ones %q, at once %q", l.path, walked, want)
		}
		foreign = first.text("pagination.cursor")
	}
}
