package reputation

import (
	"strings"
	"testing"
)

// TestBlocks: recorded answers of receivers that block a host or sender, and others that do not.
func TestBlocks(t *testing.T) {
	for _, c := range []struct{ reply, advice string }{
		{"550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. Please contact your Internet service provider since part of their network is on our block list (S3140). You can also refer your provider to http://mail.live.com/mail/troubleshooting.aspx#errors. [DB5EUR01FT035.eop-EUR01.prod.protection.outlook.com]", "Microsoft"},
		{"550 5.7.606 Access denied, banned sending IP [192.0.2.1]. To request removal from this list please visit https://sender.office.com/ and follow the directions.", "Microsoft 365"},
		{"451 4.7.650 The mail server [192.0.2.1] has been temporarily rate limited due to IP reputation. For e-mail delivery information, see https://postmaster.live.com (S775)", "Microsoft"},
		{"550-5.7.1 [192.0.2.1] Our system has detected that this message is likely unsolicited mail. To reduce the amount of spam sent to Gmail, this message has been blocked. Please visit https://support.google.com/mail/?p=UnsolicitedMessageError for more information. a1si1234567wrx.123 - gsmtp", "Gmail"},
		{"421-4.7.0 This message is suspicious due to the very low reputation of the sending IP address. To protect our users from spam, mail sent from your IP address has been temporarily rate limited. Please visit https://support.google.com/mail/answer/188131 a1si1234567wrx.123 - gsmtp", "Gmail"},
		{"421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume or user complaints - 4.16.55.1; see https://postmaster.yahooinc.com/error-codes", "Yahoo"},
		{"553 5.7.1 [BL21] Connections will not be accepted from 192.0.2.1, because the ip is in Spamhaus's list; see https://postmaster.yahooinc.com/error-codes", "Yahoo"},
		{"554 IP=192.0.2.1 - A problem occurred. Ask your postmaster for help or to contact tosa@rx.t-online.de to clarify.", "T-Online"},
		{"554-gmx.net (mxgmx101) Nemesis ESMTP Service not available 554-No SMTP service 554-IP address is black listed. 554 For explanation visit https://postmaster.gmx.net/en/error-messages", "GMX"},
		{"550 5.7.1 Service unavailable; client [192.0.2.1] blocked using zen.spamhaus.org", "Spamhaus"},
		{"554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using b.barracudacentral.org; http://www.barracudanetworks.com/reputation/?pr=1&ip=192.0.2.1", "Barracuda"},
		{"554 Blocked - see https://ipcheck.proofpoint.com/?ip=192.0.2.1", "Proofpoint"},
		{"550 5.7.1 Message rejected due to IP reputation: your IP has a poor reputation", "reputation"},
		{"550 5.7.1 192.0.2.1 is on our blocklist", "list"},
		{"554 5.7.1 Your IP address is blacklisted", "list"},
		{"550 5.1.1 The email account that you tried to reach does not exist. Please try double-checking the recipient's email address. For more information, go to https://support.google.com/mail/?p=NoSuchUser a1si1234567wrx.123 - gsmtp", ""},
		{"552 5.2.2 The email account that you tried to reach is over quota. https://support.google.com/mail/?p=OverQuotaPerm a1si1234567wrx.123 - gsmtp", ""},
		{"550 5.1.1 <x@far.test>: Recipient address rejected: User unknown in local recipient table", ""},
		{"550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302). [DB5EUR01FT035.eop-EUR01.prod.protection.outlook.com]", ""},
		{"554 5.7.1 The message contains a virus", ""},
		{"550 5.7.1 Message rejected as spam by content filtering", ""},
		{"450 4.2.0 Greylisted, try again in 5 minutes", ""},
		{"552 5.3.4 Message size exceeds fixed limit", ""},
		{"550 5.7.1 Relaying denied", ""},
		{"550 5.2.1 The mailbox is blocked", ""},
		{"250 2.0.0 OK 1234567890 a1si1234567wrx.123 - gsmtp", ""},
		{"", ""},
	} {
		advice, blocked := adviceOn(c.reply)
		if blocked != (c.advice != "") || blocked && !strings.Contains(advice, c.advice) {
			t.Errorf("%s\n\tgives %v %q, want %q", c.reply, blocked, advice, c.advice)
		}
	}
}
