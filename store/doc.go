// Package store keeps Mailstead's records in bbolt and its message bytes in append-only segments,
// all in one directory. It does not know what the records mean, who may see them, or what happens
// next.
//
// What follows is the format: the files, and every bucket of the database with its keys and values.
//
// States and types of records are strings, and have constants beside the record: its name and the
// value, as in MailboxActive, with the field between them where it is not the Status or State, as
// in MailboxTypeHosted. A predicate that several rules ask is a method of the record.
//
// # Where things stand
//
// The sources are in layers; a file names only those beside and above it in this list.
//
//	ids.go, errors.go  ids, keys of times and numbers; errors
//	store.go, tx.go    the store and a transaction, over those of the packages below
//	accounts.go, domains.go, mailboxes.go, jobs.go, webhooks.go, inbound.go, outbound.go, secrets.go
//	                   the records, their states and predicates, the tables that keep them, and
//	                   which of their fields are sealed
//	blobs.go, accepted.go
//	                   the bytes of messages
//	text.go            the text index, over package textindex
//	entries.go, snapshot.go
//	                   what each commit changed, and the whole store, for who keeps a copy of it
//	compact.go         moving live messages out of segments
//	rebuild.go, rebuild_messages.go, rebuild_counts.go
//	                   a new database of a damaged one
//	tables.go          the list of all tables
//	open.go, migrate.go, check.go, drop_account.go
//	                   Open; what it makes of older stores; Check; what an account has in all tables
//
// Below are packages that know nothing of the records: engine (transactions, the committer, tables
// and their indexes, entries), mailrow (rows and keys of the message index), mailindex (folders,
// messages, lists, threads, references to blobs), textindex (the search by words), segment (message
// bytes), entry (what one commit changed), rowform (form and checksum of a row), postings (blocks
// of the text index), keyfile (the file of the master key), diskroom and boltfile.
//
// # Files
//
//	mailstead.db           the database (bbolt), with the buckets below
//	segments/00000001.seg  message bytes; the number in 8 hexadecimal digits, never used again
//	segments/00000002.tmp  a segment that is being written; removed by Open
//	spool/spool-…          a message of over 256 KiB while it arrives; nameless once open, and
//	                       removed by Open
//
// The layout of a segment stands in package segment. The key that secrets are sealed under lies
// beside these (master.key), and is not the store's. secrets.go says where secrets are.
//
// # How buckets are written down
//
// A line gives a bucket's name, then key → value. A number behind a name is its size in bytes.
// Integers are big-endian, so that keys sort as their numbers do. ms is a time in milliseconds
// since 1970, day a number of days since then. account, mailbox and folder are the short numbers of
// the records (Account.Num, Mailbox.Num, Folder.ID); INBOX is folder 1 of every mailbox.
//
// A sum is the CRC-32C, 4 bytes, of the bucket's name, a zero, the key and all of the value before
// it, as package rowform says. A version is 0x32, or as it is given, where a sum follows. What is
// in brackets is how older stores have it; such rows are read, and get today's form when they are
// written again. Their first byte differs from that of today's rows by more than one bit, or their
// length tells them. Values without a sum are empty or follow from other rows, with which Check
// compares them: the ids in indexes from the records, marks, counts and references from the
// messages.
//
// # The store itself
//
//	meta  "format" → number 4 of the store's format, today 5 | version of the program that brought
//	      the store there | sum; a program refuses a store of a higher number. This row never
//	      changes its form
//	      "migration" → number 4 of the format that it leads to | key to go on at | sum; only
//	      between the transactions of a migration
//
// # Messages
//
//	msg              mailbox 4, folder 4, uid 4 → message row
//	msg_meta         mailbox 4, folder 4, uid 4 → meta row
//	inbox_class      account 4, class 1, received ms 8, uid 4, mailbox 4 → flags 1, bits 1
//	                 sequence: 1 where keys tell what is flagged
//	inbox_mbx_class  folder's number 4, class 1, received ms 8, uid 4 → flags 1, bits 1
//	folder           mailbox 4, folder 4 → folder row
//	folder_name      mailbox 4, name → folder 4
//	folder_num       folder's number 4 → mailbox 4, folder 4; of those that are not INBOX
//	                 sequence: the newest number, from 2³¹ on
//	subscribed       mailbox 4, name → nothing; a subscription of which there is no folder
//	mailbox_count    mailbox 4 → mailbox row
//	account_count    account 4 → messages 8, bytes 8, received ms 8 of what arrived last, if any has
//	expunged         mailbox 4, folder 4, modseq 8 → expunged row
//	blob_ref         segment 4, offset 4, owner → head 4, length 4
//	blob_live        segment 4 → bytes 8 of the records that are referred to
//	                 sequence: the newest segment that was there before the database
//	blob_structure   segment 4, offset 4 → version 1 | structure of the message there, where it is
//	                 over 2 KiB | sum [structure]
//
// inbox_class holds the messages of INBOX, inbox_mbx_class those of all folders. INBOX has the
// number of its mailbox, other folders have numbers of their own from 2³¹ on. Their class is the
// sum of 1 seen, 2 with attachments, 4 warm-up, 8 flagged. An owner is a letter and a key or an id:
// m and the key in msg, s a Submission, r a ReportMail, c a RemoteCopy, a an Arrival, b a Batch,
// l a SpamLesson, p an Approval. The rows:
//
//	message row  version 1 | flags 1 | bits 1 | account 4 | received ms 8 | modseq 8
//	             | segment 4 | offset 4 | head 4 | length 4
//	             | keywords, each: length 1 | text
//	             | 0 1 | saved ms 8, where that is another time than received
//	             | sum [version 1, no sum]
//	meta row     version 1 | structure | preview | thread id | original message id | return path
//	             | SPF | DKIM | DMARC | recipient, unless it is the mailbox's own address | Bcc
//	             | answered by | spam | arrived | words; the last as far as not empty
//	             each: length uvarint | bytes
//	             | sum [version 1, no sum]
//	             in version 0x33 [2, no sum] the structure is empty and stands in blob_structure
//	folder row   version 1 | subscribed 1 | validity 4 | uidnext 4 | modseq 8 | messages 4
//	             | unseen 4 | bytes 8 | name | special use | number 4, but for INBOX
//	             name and special use: length uvarint | text
//	             | sum [version 1, no sum]
//	expunged row version 1 | day 2 | gaps uvarint | modseq - floor uvarint
//	             | UIDs, ascending ranges, each: 2 × what is between it and the one before it, + 1
//	             for more than one UID, uvarint | these UIDs - 2, uvarint, for more than one
//	             | sum
//	             gaps are the UIDs below uidnext of which there is no message; what has left since
//	             the floor is in the rows up to this one, unless the folder has other gaps
//	mailbox row  version 1 | next folder 4 | validity 4 | modseq 8 | messages 8 | bytes 8
//	             | sum [version 1, no sum]
//
// # Accepted mail
//
//	accepted  "filed" → which accepted messages are filed, see segment.FiledMark | sum [no sum]
//
// # Entries
//
//	entry  number 8 → what that commit changed, as package entry says; only where entries are kept
//	       "last" → nonce 16 and time ms 8 of the last entry | sum; only where entries are kept
//	       sequence: the number of the last commit
//
// # Text index
//
//	text_todo   account 4, folder's number 4 → uid 4: its messages from that on are not indexed
//	            account 4, folder's number 4, uid 4 → nothing: this one is not
//	            sequence: 1 while the index is being reset
//	text_run    account 4, run 8 → run row
//	            sequence: the newest run
//	text_place  account 4, run 8, number 4 → version 1 | places of the messages from that number on,
//	            up to 250 | sum [places]
//	text_word   account 4, run 8, last word → version 1 | block of words up to that one, see package
//	            postings | sum [block]
//	text_gone   account 4, place 16 → version 1 | unix seconds 8 of the deletion | sum [seconds]
//
//	run row     version 1 | state 1 | messages 4 | bytes 8 of its blocks | newest place 16
//	            | oldest place 16 | sum [version 1, no sum]
//	            states: 0 being written, 1 searched, 2 being deleted
//	place       received ms 8 | uid 4 | mailbox 4
//
// # Conversations
//
//	thread          account 4, node 13 → version 1 | node 13 of an older message, or itself
//	                | day 2 of its use | sum [node, day; before that, node]
//	thread_joined   account 4, node 13 of a thread, node 13 of one that was joined to it → nothing
//	thread_subject  day 2, account 4, subject 8 → version 1 | node 13 of the thread | sum [node]
//
// # Classifier of spam
//
//	spam_token  account 4, token 8 → version 1 | messages of spam 2, others 2 that had it
//	            | day 2 when it was last counted | sum
//
// # Tables
//
// A table is a bucket: id → form 1 | record | sum [record as JSON]. In form 1 the record is JSON.
// The tables that every message writes have form 2, the fields in the order of the record's
// function `fields`, behind a version of their own, as rowform.Coder says: job, event, delivery,
// submission, outgoing and mapping. A row of a form or version that is not known is ErrNewer, and
// every other record is read. Each index of a table is a bucket named table.index: key → id, where
// the key of an index that is not unique ends in the id too. An index may leave records out. Below
// are the id and the record of each table, and the key of each index. A 0 is a byte of that value;
// it ends a text that others may begin with. The sequences of account and mailbox are the newest
// short numbers.
//
//	account                  acc_… → Account
//	account.num              unique: number 4
//	user                     usr_… → User
//	user.email               unique: address
//	user.reset               unique: hash of a reset token
//	user.forgot              unique: hash of a token that was sent by mail
//	user.mailbox             unique: mailbox, of its person
//	user.account             account
//	token                    tok_… → Token
//	token.hash               unique: hash of the token
//	token.account            account
//	token.user               user
//	token.session            created ms 8; sessions only
//	token.limited            mailbox, or account if there are several; those that are limited to
//	                         mailboxes and not revoked
//	token.tainting           account; those that reading taints, limited to no mailbox, not revoked
//	token.code               unique: hash of the code that a grant was given for
//	token.family             unique: hash of what the refresh tokens of a grant begin with
//	oauth_client             oac_… → OAuthClient
//	oauth_client.unused      "unused"; those that never got a token
//	oauth_request            hash of a request or a code → OAuthRequest
//	oauth_request.time       expires ms 8
//	oauth_request.session    session; those that wait for a decision
//	daystat                  account, YYYY-MM-DD → DayStat
//	daystat.account          account
//	idempotency              hash of token, method, path and key → Idempotency
//	idempotency.time         created ms 8
//	audit                    aud_… → Audit
//	audit.account            account
//	audit.failed             unique: minute ms 8, account, 0, IP address; failed log-ins only
//
//	domain                   dom_… → Domain
//	domain.name              unique: name; proven claims only
//	domain.claim             name, 0
//	domain.own               unique: account, 0, name
//	domain.account           account
//	domain.open              account; open claims only
//	domain.under             labels from the right, each with a dot behind it, 0
//	custom_record            rec_… → CustomRecord
//	custom_record.domain     domain
//	purchase                 pur_… → Purchase
//	purchase.domain          unique: name; not the refused ones
//	pretend_domain           name → PretendDomain
//	zone_base                "zones" → ZoneBase
//	certificate              "host" or domain → Certificate
//	certificate_account      URL of the directory → CertificateAccount
//
//	mailbox                  eu_… → Mailbox
//	mailbox.paused           domain; those that may not send
//	mailbox.address          unique: domain, 0, address; not those that are being deleted
//	mailbox.num              unique: number 4
//	mailbox.account          account
//	mailbox.domain           domain
//	mailbox.recovery         unique: hash of the link that confirms a recovery address
//	mailbox.waiting          domain; those that are neither ready nor being deleted
//	mailbox.hashed           domain; with nothing of their password but a hash
//	subscribed_names         mailbox number in decimal → Subscriptions, from before subscribed
//	copy_intent              cpy_… → CopyIntent
//	remote_box               mailbox → RemoteBox
//	remote_box.account       account
//	remote_copy              rcp_… → RemoteCopy
//	remote_copy.account      account
//	address                  domain, 0, address → Address
//	address.mailbox          mailbox, domain, 0, address
//	address.domain           domain, domain, 0, address
//	group                    grp_… → Group
//	group.account            account
//	group_member             group, place of 5 digits → GroupMember
//	group_member.group       group, group, place
//	group_member.mailbox     mailbox, group, place
//	group_member.member      group that is the member, group, place
//	credential               cred_… → Credential
//	credential.hash          unique: SHA-256 of the password, hex
//	credential.mailbox       mailbox
//	credential.domain        domain
//	template                 tpl_… → Template
//	template.account         account
//	export                   exp_… → Export
//	export.link              unique: hash of the link's token
//	export.account           account
//
//	job                      job_… → Job
//	job.due                  due ms 8, lane, 0; not ended ones
//	job.lane                 lane, 0, due ms 8; not ended ones
//	job.key                  unique: kind, 0, key; queued ones that have a key
//	job.account              account; visible ones
//	job.ended                ended ms 8
//
//	webhook                  wh_… → Webhook
//	webhook.account          account
//	event                    evt_… → Event
//	event.account            account
//	delivery                 dlv_… → Delivery
//	delivery.webhook         webhook
//	delivery.event           webhook, event
//
//	submission               sub_… → Submission
//	pending_rcpt             submission → PendingRcpts
//	arrival                  arr_… → Arrival
//	rule                     rule_… → Rule
//	rule.mailbox             mailbox
//	vacation                 mailbox → Vacation
//	auto_reply               mailbox, ".", digest → AutoReply
//	auto_reply.time          expires
//	spam_model               account → SpamModel
//	spam_lesson              les_… → SpamLesson
//	spam_lesson.account      account
//	approval                 apr_… → Approval
//	approval.account         account
//	approval.status          account, status, 0
//	approval.decided         decided ms 8; those that are
//	message_template         mtl_… → MessageTemplate
//	message_template.account  account
//	batch                    bat_… → Batch
//	batch_item               batch, a space, index of 4 digits → BatchItem
//	batch_item.batch         batch
//	outgoing                 msg_… → Outgoing
//	outgoing.account         account
//	outgoing.waiting         account; those that are queued or deferred
//	outgoing.parked          account; those that are scheduled or held
//	outgoing.message_id      account, Message-ID, 0
//	mapping                  map_… → Mapping
//	mapping.original         account, Message-ID of the sender, 0
//	mapping.provided         account, Message-ID of the relay, 0
//	suppression              account, address → Suppression
//	suppression.account      account, created ms 8
//	tls_policy               domain → TLSPolicy
//	tls_count                YYYY-MM-DD, a space, domain → TLSCount
//
//	report_mail              rpm_… → ReportMail
//	report_mail.account      account
//	report                   rep_… → Report
//	report.domain            domain, kind, 0
//	report.sender            class as below, sender's domain, 0, sender's report id, 0
//	report.class             domain, kind, 0, "a" if authenticated, else "u"
//	dmarc_count              id of day, domain and what is alike → DMARCCount
//	dmarc_count.day          YYYY-MM-DD, domain, 0
//	dmarc_day                YYYY-MM-DD → DMARCDay
//
//	grey_tuple               digest of network, sender and recipient → GreyTuple
//	grey_tuple.time          expires ms 8
//	known_sender             account, domain → KnownSender
//	known_sender.time        expires ms 8
//	send_day                 account, YYYY-MM-DD, mailbox, domain or account → SendDay
//	send_day.time            expires ms 8
//	contact                  account, first 16 bytes of the SHA-256 of an address → Contact
//	contact.time             expires ms 8
//	send_count               account, YYYY-MM-DD, mailbox, domain, account or operator → SendCount
//	send_count.time          expires ms 8
//	send_count.day           account, YYYY-MM-DD
//	send_alert               account, kind, scope, subject → SendAlert
//	send_alert.time          expires ms 8
//	hold                     mailbox → Hold
//	hold.time                expires ms 8
//	imported                 mailbox and digest, in hex → Imported
//	imported.time            expires ms 8
//	alert                    code, a space, subject → Alert
//	master_key               "master" → MasterKey
//	sandbox_clock            "clock" → SandboxClock
//
// A lane in job.due and job.lane is r for jobs that run; else l and the lane's name, or k and the
// job's kind where it has no lane.
//
// # What Open makes of older stores
//
// A database that was made anew has the bucket rebuild until the rows of its messages are, see
// rebuild_messages.go.
//
// A bucket that is missing is made, empty. A store without the bucket meta gets the number 1:
// without domain.claim, claims are made of the domains, and mailbox.email is deleted; without
// text_todo, all mail is noted as not indexed. The steps from there, each in bounded transactions
// that go on where they were:
//
//	2  where there are the buckets inbox and inbox_mbx, whose keys had no class, the inbox buckets
//	   are made of the messages, and those two are deleted
//	3  where the sequence of inbox_class is 0, flagged messages get their class
//	4  rows have versions and sums; nothing is rewritten
//
// While they run, no entries are kept: the next backup is a full one.
//
// # What bounds each bucket
//
// The rows of an index are at most those of its table. Those of every other bucket:
//
//	meta               two rows
//	msg                the quotas of mailboxes; one row a message
//	msg_meta           one row a message
//	inbox_class        one row a message of INBOX
//	inbox_mbx_class    one row a message
//	folder             1000 folders a mailbox
//	folder_name        one row a folder
//	folder_num         one row a folder but INBOX
//	subscribed         1000 names a mailbox
//	mailbox_count      one row a mailbox
//	account_count      one row an account
//	expunged           10 000 UIDs a folder; over 30 days, they go as others come, or all
//	blob_ref           one row a message, and what refers to bytes below
//	blob_live          one row a segment; compaction gives back those that are less than half live
//	blob_structure     one row a stored message
//	accepted           one row, as long as what is not filed
//	entry              1 GiB where entries are kept; a backup deletes those that it has
//	text_todo          one row a message; indexing deletes them
//	text_run           merging, and the messages of INBOX
//	text_place         one row for 250 messages of INBOX, until a day after they were deleted
//	text_word          the words of the messages of INBOX, until a day after they were deleted
//	text_gone          what was deleted within a day, and what waits for the run to be made anew
//	thread             two years after the last message of the thread
//	thread_joined      one row a thread that was joined
//	thread_subject     28 days
//	spam_token         200 000 an account
//	account            the operator makes and deletes them
//	user               the plan's limit of team users
//	token              people make and delete them; sessions 30 days, expired 90, revoked 7
//	oauth_client       30 days after its last use; 5000 that were never used
//	oauth_request      20 a session that wait for ten minutes, and those allowed for a minute
//	daystat            400 days of each account
//	idempotency        a day
//	audit              400 days; people's changes, and 10 000 rows a day of failed log-ins
//	domain             the plan's limit of domains
//	custom_record      a limit of records a domain
//	purchase           one for each name that was paid for; refused ones 90 days
//	pretend_domain     one for each name that was sold in a sandbox
//	zone_base          one row
//	certificate        one for each domain, and the host's
//	certificate_account  one for each directory that was ever set
//	mailbox            the plan's limit of mailboxes
//	subscribed_names   one for each mailbox of an older store; nothing adds to it
//	copy_intent        one for each copy or move that is under way; the copy deletes it
//	remote_box         one for each mailbox on another server
//	remote_copy        one for each sent message that is to be put there; twelve tries
//	address            50 aliases a mailbox; one for each group
//	group              a limit of groups an account
//	group_member       200 a group
//	credential         25 a mailbox or domain
//	template           people make and delete them
//	export             as long as its link is valid
//	job                queued and running ones; 30 days after their end for those that people see
//	webhook            a limit of endpoints an account
//	event              30 days
//	delivery           30 days
//	submission         until every recipient has an outcome
//	pending_rcpt       until every recipient has its row
//	arrival            until it is filed, or a report of it was sent
//	rule               people make and delete them; with their mailbox
//	vacation           likewise
//	auto_reply         after seven days
//	spam_model         one for each account that has taught its classifier
//	spam_lesson        until it is learned
//	approval           30 days after its decision; undecided: seven days, and 1000 of programs
//	message_template   people make and delete them
//	batch              until it is sent
//	batch_item         as long as its batch
//	outgoing           90 days after it was queued, and as long as it waits
//	mapping            90 days
//	suppression        one for each address that bounced or complained; people delete them
//	tls_policy         as long as mail goes there and the policy is valid
//	tls_count          until its day is reported
//	report_mail        until it is read
//	report             90 days
//	dmarc_count        until its day is reported; 20 000 a day
//	dmarc_day          until its day is reported
//	grey_tuple         100 000 rows; 36 days
//	known_sender       200 000 rows; 180 days
//	send_day           a mailbox, domain and account that sends; two days
//	send_count         a mailbox, domain, account and operator that has mail; 32 days
//	send_alert         an episode, while it lasts
//	hold               a mailbox whose mail is held; 14 days after the mailbox is gone
//	contact            addresses elsewhere that are written to or write, with limits on new ones; 91 days
//	imported           one row an imported message; 90 days
//	alert              one row a check that is not ok
//	master_key         one row
//	sandbox_clock      one row
package store
