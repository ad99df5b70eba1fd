// Package store keeps Mailstead's records in bbolt and its message bytes in append-only segments,
// all in one directory. It does not know what the records mean, who may see them, or what happens
// next.
//
// The rest of this comment is the format: the files, and every bucket of the database with its keys
// and values.
//
// The state or type of a record is a string. Each value has a constant next to the record, named
// after the record and the value, such as MailboxActive. If the field is not named Status or State,
// the constant also contains the name of the field, such as MailboxTypeHosted. A predicate that
// several callers need is a method of the record.
//
// # Source files
//
// The files form layers: a file uses only files on its own line of this list or above it.
//
//	ids.go, errors.go  ids, keys of times and numbers; errors
//	store.go, tx.go    the store and a transaction, over types of the packages below
//	accounts.go, domains.go, mailboxes.go, jobs.go, webhooks.go, inbound.go, outbound.go, secrets.go
//	                   the records, their states and predicates, the tables that keep them, and
//	                   which of their fields are sealed
//	blob_tables.go     the records that have blobs
//	blobs.go, accepted.go
//	                   the bytes of messages
//	text.go            the text index, over package textindex
//	entries.go, snapshot.go
//	                   what each commit changed, and the whole store, for backups
//	compact.go         moving live messages out of segments
//	rebuild.go, rebuild_messages.go, rebuild_counts.go
//	                   a new database from a damaged one
//	tables.go          the list of all tables
//	open.go, migrate.go, check.go, drop_account.go
//	                   Open; migrations of older stores; Check; deletion of an account in all tables
//
// The packages below store do not know the records: engine (transactions, the committer, tables and
// their indexes, entries), mailrow (rows and keys of the message index), mailindex (folders,
// messages, lists, threads, references to blobs), textindex (the search by words), segment (message
// bytes), entry (the changes of one commit), rowform (form and checksum of a row), postings (blocks
// of the text index), recordid (ids), requestlog (the log of requests), policy (what may be sent),
// keyfile (the file of the master key), diskroom (free disk space) and boltfile (verifying and
// salvaging the database file). Above it are backup (copies of a store) and digest (comparing two
// stores).
//
// # Files
//
//	mailstead.db           the database (bbolt), with the buckets below
//	requests/ACCOUNT/…     the request log, see package requestlog; it is not part of the store, and
//	                       neither backups nor Check know it
//	segments/00000001.seg  message bytes; the number in 8 hexadecimal digits, never reused
//	segments/00000002.tmp  a segment that is being written; removed by Open
//	spool/spool-…          a message of over 256 KiB while it arrives; unlinked once open, and
//	                       removed by Open
//
// The layout of a segment is described in package segment. The master key, which seals the secrets,
// is in the same directory (master.key), but is not part of the store. secrets.go lists the fields
// with secrets.
//
// # Notation of buckets
//
// A line shows the name of a bucket, then key → value. A number after a name is its size in bytes.
// Integers are big-endian, so that keys sort by number. ms is a time in milliseconds since 1970,
// day a number of days since then. account, mailbox and folder are the short numbers of the records
// (Account.Num, Mailbox.Num, Folder.ID); INBOX is folder 1 of every mailbox.
//
// A sum is the CRC-32C, 4 bytes, of the bucket's name, a zero byte, the key and the value before
// the sum; see package rowform. In a row with a sum, the version is 0x32 unless another value is
// shown. Brackets show the form of older stores. Rows in that form are still read, and get the
// current form when they are next written. Their first byte differs from that of current rows by
// more than one bit, or their length identifies them. Values without a sum are empty or can be
// derived from other rows. Check compares them: the ids in indexes with the records; flags,
// counters and references with the messages.
//
// # The store itself
//
//	meta  "format" → number 4 of the store's format, see storeFormat | version of the program that
//	      brought the store there | sum; a program refuses a store of a higher number. This row
//	      never changes its form
//	      "migration" → number 4 of its target format | key to continue at | sum; only
//	      between the transactions of a migration
//
// # Messages
//
//	msg              mailbox 4, folder 4, uid 4 → message row
//	msg_meta         mailbox 4, folder 4, uid 4 → meta row
//	inbox_class      account 4, class 1, received ms 8, uid 4, mailbox 4 → flags 1, bits 1
//	                 sequence: 1 if keys have a class for flagged messages
//	inbox_mbx_class  folder's number 4, class 1, received ms 8, uid 4 → flags 1, bits 1
//	folder           mailbox 4, folder 4 → folder row
//	folder_name      mailbox 4, name → folder 4
//	folder_num       folder's number 4 → mailbox 4, folder 4; of folders other than INBOX
//	                 sequence: the newest number, from 2³¹ on
//	subscribed       mailbox 4, name → nothing; a subscription without a folder
//	mailbox_count    mailbox 4 → mailbox row
//	account_count    account 4 → messages 8, bytes 8, received ms 8 of the last arrival, if any
//	expunged         mailbox 4, folder 4, modseq 8 → expunged row
//	blob_ref         segment 4, offset 4, owner → head 4, length 4
//	blob_live        segment 4 → bytes 8 of the referenced records
//	                 sequence: the newest segment that is older than the database
//	blob_structure   segment 4, offset 4 → version 1 | structure of the message there, if it is over
//	                 2 KiB | sum [structure]
//
// inbox_class holds the messages of INBOX folders, inbox_mbx_class the messages of all folders.
// INBOX has the number of its mailbox; other folders have numbers of their own from 2³¹ on. The
// class is the sum of 1 seen, 2 with attachments, 4 warm-up, 8 flagged. An owner is a letter and a
// key or an id: m and the key in msg, s and a Submission, r and a ReportMail, c and a RemoteCopy, a
// and an Arrival, b and a Batch, l and a SpamLesson, p and an Approval, z and the
// domain of a ZoneScan. The rows:
//
//	message row  version 1 | flags 1 | bits 1 | account 4 | received ms 8 | modseq 8
//	             | segment 4 | offset 4 | head 4 | length 4
//	             | keywords, each: length 1 | text
//	             | 0 1 | saved ms 8, unless it is the same as received
//	             | sum [version 1, no sum]
//	meta row     version 1 | structure | preview | thread id | original message id | return path
//	             | SPF | DKIM | DMARC | recipient, unless it is the mailbox's own address | Bcc
//	             | answered by | spam | arrived | words | drafted | judged | warm-up; empty ones at
//	             the end are left out
//	             each: length uvarint | bytes
//	             | sum [version 1, no sum]
//	             in version 0x33 [2, no sum] the structure is empty; it is in blob_structure
//	folder row   version 1 | subscribed 1 | validity 4 | uidnext 4 | modseq 8 | messages 4
//	             | unseen 4 | bytes 8 | name | special use | number 4, except for INBOX
//	             name and special use: length uvarint | text
//	             | sum [version 1, no sum]
//	expunged row version 1 | day 2 | gaps uvarint | modseq - floor uvarint
//	             | UIDs, ascending ranges, each: 2 × the UIDs since the range before it, + 1
//	             for more than one UID, uvarint | count of UIDs - 2, uvarint, for more than one
//	             | sum
//	             gaps is the number of UIDs below uidnext without a message; UIDs expunged since the
//	             floor are in the rows up to this one, unless the folder has other gaps
//	mailbox row  version 1 | next folder 4 | validity 4 | modseq 8 | messages 8 | bytes 8
//	             | sum [version 1, no sum]
//
// # Accepted mail
//
//	accepted  "filed" → mark of filed messages, see segment.FiledMark | sum [no sum]
//
// # Entries
//
//	entry  number 8 → the changes of that commit, see package entry; only if entries are kept
//	       "last" → nonce 16 and time ms 8 of the last entry | sum; only if entries are kept
//	       sequence: the number of the last commit
//
// # Text index
//
//	text_todo   account 4, folder's number 4 → uid 4: its messages from that UID on are not indexed
//	            account 4, folder's number 4, uid 4 → nothing: this message is not indexed
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
//	thread_joined   account 4, node 13 of a thread, node 13 of a thread joined to it → nothing
//	thread_subject  day 2, account 4, subject 8 → version 1 | node 13 of the thread | sum [node]
//
// # Classifier of spam
//
//	spam_token  account 4, token 8 → version 1 | messages of spam 2 and others 2 that contain it
//	            | day 2 when it was last counted | sum
//
// # Tables
//
// A table is a bucket: id → form 1 | record | sum [record as JSON]. In form 1 the record is JSON.
// Tables that every message writes to have form 2: a version, then the fields in the order of the
// record's method `codeFields`, see rowform.Coder. These tables are job, event, delivery,
// submission, outgoing and mapping. Reading a row of an unknown form or version returns ErrNewer;
// every other record can still be read. Each index of a table is a bucket named table.index: key →
// id. The key of an index that is not unique also ends in the id. An index may leave records out.
// The list below shows the id and the record of each table, and the key of each index. A 0 is a
// byte of that value; it ends a text that could be the prefix of another. The sequences of account
// and mailbox are the newest short numbers.
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
//	token.limited            mailbox, or account if there are several; tokens that are limited to
//	                         mailboxes and not revoked
//	token.tainting           account; tokens that reading taints, not limited or revoked
//	token.code               unique: hash of the code that was exchanged for a grant
//	token.family             unique: hash of the prefix of a grant's refresh tokens
//	oauth_client             oac_… → OAuthClient
//	oauth_client.unused      "unused"; clients that never got a token
//	oauth_request            hash of a request or a code → OAuthRequest
//	oauth_request.time       expires ms 8
//	oauth_request.session    session; requests that wait for a decision
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
//	domain.trouble           account, "1" for those that are in trouble and "0" for the others
//	domain.staged            "staged"; those with a change of their zone that has not ended
//	domain.dns_credential    DNS credential; those that use one
//	domain.dns_move          DNS credential of the provider to which it moves; those that move
//	domain.under             labels from the right, each with a dot behind it, 0
//	custom_record            rec_… → CustomRecord
//	custom_record.domain     domain; not the removed ones
//	custom_record.removed    domain, ".", generation of 16 hex digits, "."; the removed ones
//	zone_change              zch_… → ZoneChange
//	zone_change.domain       domain
//	zone_scan                domain → ZoneScan
//	edge_record              domain, 0, place of 8 hex digits, ".", provider's id → EdgeRecord
//	dns_credential           dnsc_… → DNSCredential
//	dns_credential.account   account
//	purchase                 pur_… → Purchase
//	purchase.domain          unique: name; not the refused ones
//	pretend_domain           name → PretendDomain
//	zone_base                "zones" → ZoneBase
//	certificate              "host" or domain → Certificate
//	certificate_account      URL of the directory → CertificateAccount
//
//	mailbox                  eu_… → Mailbox
//	mailbox.paused           domain; mailboxes that may not send
//	mailbox.address          unique: domain, 0, address; not those that are being deleted
//	mailbox.num              unique: number 4
//	mailbox.account          account
//	mailbox.domain           domain
//	mailbox.own              account, address, 0
//	mailbox.recovery         unique: hash of the link that confirms a recovery address
//	mailbox.waiting          domain; those that are neither ready nor being deleted
//	mailbox.hashed           domain; mailboxes with only a hash of their password
//	warmup_folder            mailbox number, ".", folder, in decimal → WarmupFolder
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
//	approval.decided         decided ms 8; decided ones only
//	message_template         mtl_… → MessageTemplate
//	message_template.account  account
//	batch                    bat_… → Batch
//	batch_item               batch, a space, index of 4 digits → BatchItem
//	batch_item.batch         batch
//	outgoing                 msg_… → Outgoing
//	outgoing.account         account
//	outgoing.waiting         account; queued and deferred messages
//	outgoing.parked          account; scheduled and held messages
//	outgoing.failed          account, status, 0; those that were not delivered, see Outgoing.Failed
//	outgoing.message_id      account, Message-ID, 0
//	mapping                  map_… → MessageIDMapping
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
//	dmarc_count              digest of day, domain and common properties → DMARCCount
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
//	imported                 mailbox and digest, in hex → ImportedMessage
//	imported.time            expires ms 8
//	alert                    code, a space, subject → Alert
//	backup_drill             "last" → BackupDrill
//	master_key               "master" → MasterKey
//	setting                  key → Setting
//	sandbox_clock            "clock" → SandboxClock
//
// The lane in keys of job.due and job.lane is r for a running job and p for a parked one. For other
// jobs it is l and the lane's name, or k and the job's kind if the job has no lane.
//
// # What Open makes of older stores
//
// A rebuilt database has the bucket rebuild until the lost rows of its messages are made again, see
// rebuild_messages.go.
//
// Open creates missing buckets. It brings a store without the bucket meta to format 1: if there is
// no domain.claim, it makes claims from the domains and deletes mailbox.email; if there is no
// text_todo, it marks all messages as not indexed. Then it runs the steps to the later formats,
// each in bounded transactions. After a restart, a step continues where it was:
//
//	2  where there are the buckets inbox and inbox_mbx, whose keys had no class, the inbox buckets
//	   are made of the messages, and those two are deleted
//	3  where the sequence of inbox_class is 0, flagged messages get their class
//	4  rows have versions and sums; nothing is rewritten
//	5  queued messages have new fields; nothing is rewritten
//	6  folders other than INBOX get numbers, and their messages are listed and queued for the text
//	   index
//	7  policies and approvals are new; nothing is rewritten
//	8  the indexes token.tainting and mailbox.hashed are filled
//	9  records at DNS providers become rows of their own
//	10 rows of the sending log have new fields; nothing is rewritten
//
// During these steps no entries are kept, so that the next backup is a full one.
//
// # What bounds each bucket
//
// An index has at most as many rows as its table. The limits of every other bucket:
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
//	blob_ref           one row a message, and one for each record below that has a blob
//	blob_live          one row a segment; compaction removes segments that are less than half live
//	blob_structure     one row a stored message
//	accepted           one row; its length follows the number of unfiled messages
//	entry              1 GiB if entries are kept; a backup deletes those that it contains
//	text_todo          one row a message; indexing deletes them
//	text_run           merging, and the messages of INBOX
//	text_place         one row for 250 messages of INBOX, until a day after they were deleted
//	text_word          the words of the messages of INBOX, until a day after they were deleted
//	text_gone          messages deleted within a day, and those whose run is not rewritten yet
//	thread             two years after the last message of the thread
//	thread_joined      one row a thread that was joined
//	thread_subject     28 days
//	spam_token         200 000 an account
//	account            the operator makes and deletes them
//	user               the plan's limit of team users
//	token              people make and delete them; sessions 30 days, expired 90, revoked 7
//	oauth_client       30 days after its last use; 5000 that were never used
//	oauth_request      20 a session that wait, for ten minutes; allowed ones for a minute
//	daystat            400 days of each account
//	idempotency        a day
//	audit              400 days; people's changes, and 10 000 rows a day of failed log-ins
//	domain             the plan's limit of domains
//	custom_record      limits a domain and an account; 10 000 removed ones, or a change
//	zone_change        100 changes a domain
//	zone_scan          one row a domain
//	edge_record        one record at a DNS provider; about 5 000 a domain
//	dns_credential     100 an account
//	purchase           one for each name that was paid for; refused ones 90 days
//	pretend_domain     one for each name that was sold in a sandbox
//	zone_base          one row
//	certificate        one for each domain, and the host's
//	certificate_account  one for each directory that was ever configured
//	mailbox            the plan's limit of mailboxes
//	warmup_folder      a folder of a mailbox, as long as it has warm-up mail that was filed there
//	subscribed_names   one for each mailbox of an older store; nothing adds to it
//	copy_intent        one for each copy or move in progress; the copy deletes it
//	remote_box         one for each mailbox on another server
//	remote_copy        one for each sent message to be copied there; twelve attempts
//	address            50 aliases a mailbox; one for each group
//	group              a limit of groups an account
//	group_member       200 a group
//	credential         25 a mailbox or domain
//	template           people make and delete them
//	export             as long as its link is valid
//	job                queued and running ones; visible ones until 30 days after their end
//	webhook            a limit of endpoints an account, each with 10 KiB of headers and 1 000 ids
//	event              30 days
//	delivery           30 days
//	submission         until every recipient has an outcome
//	pending_rcpt       until every recipient has its row
//	arrival            until it is filed, or a DSN for it was sent
//	rule               people make and delete them; with their mailbox
//	vacation           likewise
//	auto_reply         after seven days
//	spam_model         one for each account that has taught its classifier
//	spam_lesson        until it is learned
//	approval           30 days after its decision; undecided: seven days, and 1000 of programs
//	message_template   people make and delete them
//	batch              until it is sent
//	batch_item         as long as its batch
//	outgoing           90 days after it was queued, and as long as it is not final
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
//	contact            external correspondents, with limits on new ones; 91 days
//	imported           one row an imported message; 90 days
//	alert              one row a check that is not ok
//	backup_drill       one row
//	master_key         one row
//	setting            1000 rows, each of at most 16 KiB
//	sandbox_clock      one row
package store
