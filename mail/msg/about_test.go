package msg

import "testing"

// TestAboutOf: what an answer is about follows from what it says before it follows from its code.
func TestAboutOf(t *testing.T) {
	for answer, want := range map[string]About{
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
		"5.1.0 - Unknown address error 550-'5.7.1 <a@b.test>... Access denied' (delivery attempts: 0)": AboutUnknown,
		"Sorry, I couldn't find a mail exchanger or IP address. (#5.4.4)":                              AboutAddress,
		"Connected but my name was rejected: 501 5.0.0 Invalid domain name":                            AboutSender,
		"550 5.1.1 Refused due to recipient preferences":                                               AboutSender,
		"收件人：a@b.test 用户不存在":                                                                           AboutAddress,
		"550 no":                                                                                       AboutUnknown,
		"":                                                                                             AboutUnknown,
	} {
		if got := AboutOf(answer); got != want {
			t.Errorf("%q is about %d, want %d", answer, got, want)
		}
	}
}
