package msg

import (
	"strings"
	"testing"
)

// TestAboutOf: what an answer is about follows from what it says before it follows from its code.
func TestAboutOf(t *testing.T) {
	for answer, want := range map[string]RefusalSubject{
		"550 5.2.1 The user you write to receives mail at a rate that stops more of it": AboutSender,
		"550 Sender verify failed":                                                    AboutSender,
		"550 5.1.0 sender rejected":                                                   AboutSender,
		"550 5.1.0 Sender unknown":                                                    AboutSender,
		"550 5.1.1 sender rejected":                                                   AboutSender,
		"550 5.1.1 Mail from 192.0.2.1 rejected for policy reasons":                   AboutSender,
		"521 5.2.1 : (CON:B1) we will not accept delivery of this message":            AboutSender,
		"550 Administrative prohibition":                                              AboutSender,
		"550 authentication required":                                                 AboutSender,
		"550 5.1.1 <a@b.test> too many messages this hour":                            AboutSender,
		"550 5.7.1 Service unavailable, client host [192.0.2.1] blocked using a list": AboutSender,
		"550 5.7.23 SPF validation failed":                                            AboutSender,
		"553 relaying denied":                                                         AboutSender,
		"550 5.1.10 RecipientNotFound; u@far.test not found by SMTP address lookup":   AboutAddress,
		"550 5.1.1 <spam.policy@far.test>: Recipient address rejected: User unknown in virtual mailbox table":           AboutAddress,
		"550-5.1.1 The email account that you tried to reach does not exist. Go to https://support.example/mail/policy": AboutAddress,
		"554 delivery error: dd This user doesn't have a far.test account (u@far.test) [0]":                             AboutAddress,
		"554 30 Sorry, your message to u@far.test cannot be delivered. This mailbox is disabled (554.30).":              AboutAddress,
		"552 Mailbox full":                AboutRoom,
		"552 5.2.2 u@far.test over quota": AboutRoom,
		"550 5.4.1 Recipient address rejected: Access denied. [x.y.z]":                                 AboutUnknown,
		"SMTP error after MAIL FROM:<ann@here.test>: 553 5.1.0 here.test does not exist":               AboutSender,
		"5.1.0 - Unknown address error 550-'5.2.2 <a@b.test>... Mailbox Full' (delivery attempts: 0)":  AboutRoom,
		"5.1.0 - Unknown address error 550-'5.7.1 <a@b.test>... Access denied' (delivery attempts: 0)": AboutSender,
		"Sorry, I couldn't find a mail exchanger or IP address. (#5.4.4)":                              AboutAddress,
		"Connected but my name was rejected: 501 5.0.0 Invalid domain name":                            AboutSender,
		"550 5.1.1 Refused due to recipient preferences":                                               AboutSender,
		"收件人：a@b.test 用户不存在":                                                                           AboutAddress,
		"550 no":                                                                                       AboutUnknown,
		"":                                                                                             AboutUnknown,
	} {
		if got := RefusalSubjectOf(answer); got != want {
			t.Errorf("%q is about %d, want %d", answer, got, want)
		}
	}
}

// TestAboutOfOtherHosts has answers of many kinds of hosts, one a line.
func TestAboutOfOtherHosts(t *testing.T) {
	for want, answers := range map[RefusalSubject]string{
		AboutSender: `550-5.2.1 The user you write to is receiving mail too quickly
			550 5.1.90 You have reached your daily limit for message recipients
			521 5.2.1 : We will not accept delivery of this message
			550 Mail content denied
			550 Ip frequency limited
			550 Suspected bounce attacks
			550 Mail is rejected by recipients
			550 5.0.0 Access denied
			550 Callback setup failed while verifying <ann@here.test>
			541 5.4.1 Mail rejected by destination domain
			550 5.1.1 You are not allowed to send to this address
			550 5.1.1 Your domain is listed on a DNSBL
			550 5.2.1 this account receives messages faster than permitted
			550 5.1.0 message volume from here.test is unusual
			550 5.1.1 rbl
			550 5.1.1 hourly quota for here.test used up
			550 5.1.0 <ann@here.test> originator unknown
			550 5.1.1 envelope-from rejected
			550 return-path verification failed
			550 5.1.1 Access from your country is forbidden
			550 Go away
			550 5.1.1 AUTH needed
			550 5.1.1 STARTTLS required
			550 5.1.1 message considered bulk
			550 5.1.1 suspicious message
			550 This message looks like phishing
			550 infected message
			550 5.1.1 no PTR for 192.0.2.1
			550 refused by rule
			550 5.1.1 forged From
			550 5.1.1 no aligned signature
			550 only members may post to this list
			550 5.2.1 recipient does not want your mail
			550 Mail refused by the filter of the recipient
			550 too many unknown users from your host`,
		AboutRoom: `550 Mailbox would exceed maximum allowed storage
			550 the user's space has been used up
			550 full mailbox
			550 User is over flow
			550 does not have enough space
			550 5.1.1 mailbox over its limit
			550 5.1.1 quota limit reached
			550 5.2.1 The user's inbox has no storage left`,
		AboutMessage: `550 5.1.1 message too big
			550 maximum message size exceeded
			550 Message headers fail syntax check
			550 5.1.1 8BITMIME not supported
			550 5.1.1 internal error
			550 5.1.1 server busy
			550 5.1.1 sending limit reached, try tomorrow
			Name service: Host not found, try again`,
		AboutAddress: `554 delivery error: dd Not a valid recipient
			550 User suspended
			550 5.1.1 <u@far.test>: Recipient address rejected: User unknown in relay recipient table
			550 This address no longer accepts mail.
			550 sorry, this recipient is not in my validrcptto list (#5.1.1)
			550 u@far.test is not a known user
			550 not a valid user here
			550 u@far.test: is not an active address at this host
			550 There is no one at this address
			550 user u@far.test was not found
			550 Recipient u@far.test was not found in our directory
			550 unknown email address
			550 nonexistent user
			550 address not present in directory
			550 u is a deactivated mailbox
			551 User not local; please try <new@far.test>
			550 we do not know u@far.test
			554 account is closed
			550 this user is no longer with the company
			550 mailbox has been deleted
			550 this address is no longer in service
			550 domain far.test not hosted here
			DNS lookup failure: host far.test not found
			No MX or A records for far.test
			ユーザーが存在しません`,
		AboutUnknown: `550 5.7.1 <u@far.test>: Recipient address rejected: Access denied
			550 5.1.1
			550 the host closed the connection`,
	} {
		for answer := range strings.SplitSeq(answers, "\n") {
			if got := RefusalSubjectOf(strings.TrimSpace(answer)); got != want {
				t.Errorf("%q is about %d, want %d", strings.TrimSpace(answer), got, want)
			}
		}
	}
}

// TestReportsInWordsAlone reads what comes to a return path from machines that name no code.
func TestReportsInWordsAlone(t *testing.T) {
	for _, c := range []struct{ subject, text, action, status string }{
		{"Failure Notice", "<u@far.test>:\nNo MX or A records for far.test", ActionFailed, "5.1.2"},
		{"Error", "很抱歉，您的邮件无法投递到以下地址：\nu@far.test", ActionFailed, ""},
		{"Error", "メールを配信できませんでした。\n\n<u@far.test>: ユーザーが存在しません", ActionFailed, "5.1.1"},
		{"Mail System Error - Returned Mail", "<u@far.test>\n\nEach of them was rejected by a remote server.", ActionFailed, ""},
		{"Undeliverable message", "-- Reasons --\n\n(none)\nu@far.test", ActionFailed, ""},
		{"=?utf-8?b?57O757uf6YCA5L+h?=", "u@far.test", ActionFailed, ""},
		{"Mail delivery failed", "There was an error with <u@far.test>.\n\nDNS lookup failure: host far.test not found", ActionFailed, "5.1.0"},
		{"Returned", "<u@far.test>: could not be delivered: Name service error: Host not\n    found, try again", ActionFailed, "4.4.3"},
		{"Warning: your message", "u@far.test", ActionDelayed, ""},
		{"Votre message", "Votre message n'a pas pu être remis.\n\nu@far.test", ActionFailed, ""},
		{"A question", "u@far.test", "", ""},
	} {
		raw := strings.ReplaceAll("From: MAILER-DAEMON@mx.far.test\nSubject: "+c.subject+"\nContent-Type: text/plain; charset=utf-8\n\n"+c.text+"\n", "\n", "\r\n")
		report, ok := ParseReturned(strings.NewReader(raw), scanBytes(t, []byte(raw)), "u@far.test")
		action, status := "", ""
		if ok {
			r := report.ForRecipient("u@far.test")
			action, status = r.Action, r.Status
		}
		if action != c.action || status != c.status {
			t.Errorf("%s, %q: %q %q, want %q %q", c.subject, c.text, action, status, c.action, c.status)
		}
	}
}
