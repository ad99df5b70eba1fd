package reputation

import (
	"regexp"
	"sync"
)

// A block is a pattern, and advice for it. The pattern matches answers of receivers that refuse
// mail because of earlier mail of this host or sender.
type block struct{ pattern, advice string }

// blocks are searched in order: large receivers first, then general patterns.
var blocks = []block{
	{`\bS3140\b|\bS3150\b|block list \(S\d+\)`, "Microsoft blocks the address of this host. Ask for it to be taken off at https://sender.office.com (Outlook.com: https://olcsupport.office.com), and enrol in SNDS to see why."},
	{`5\.7\.606|5\.7\.511|banned sending IP|Access denied, banned`, "Microsoft 365 bans the address of this host. Ask for it to be taken off at https://sender.office.com."},
	{`\bS775\b|\bS77719\b|AS\(\d+\).*(rate|reputation)|poor (IP )?reputation.*(outlook|hotmail)`, "Microsoft defers mail for the reputation of this host. Send less for some days, and only to people who expect it."},
	{`\[TSS0[49]\]|\[TS0[1-4]\]|\[BL2[123]\]`, "Yahoo holds mail of this host back because its users complain, or for its reputation. See https://senders.yahooinc.com for the code, and send only to people who expect it."},
	{`\(?(CS01|IB1\d\d|IB2\d\d|IB3\d\d|IB50\d|IB60\d|RTR:BL|DNS:NR)\)?.*(aol|att|comcast|bellsouth)|RLY:B\d`, "The receiver blocks the address of this host. See the page that its answer names, and ask there for it to be taken off."},
	{`icloud.*\b(HM08|CS01|proofpoint)\b|\[HM08\]`, "Apple refuses mail of this host because of its policy on unwanted mail. Write to icloudadmin@apple.com with the answer and the address of this host."},
	{`t-online|tosa@rx\.t-online\.de`, "T-Online takes no mail of hosts that it does not know. Write to tosa@rx.t-online.de with the address of this host, its name, and who runs it; the name must have a web page with an imprint."},
	{`gmx\.(net|com)|web\.de|mail\.com.*(policy|reputation)|postmaster\.(gmx|1und1)`, "GMX and WEB.DE refuse mail of this host. See https://postmaster.gmx.net for the code in the answer."},
	{`proofpoint|ipcheck\.proofpoint\.com|pphosted`, "Proofpoint blocks the address of this host. Ask for it to be taken off at https://ipcheck.proofpoint.com."},
	{`barracuda|barracudacentral`, "Barracuda lists the address of this host. Ask for it to be taken off at https://www.barracudacentral.org/rbl/removal-request."},
	{`mimecast`, "Mimecast refuses mail of this host because of its reputation. Ask the recipient's administrator to permit it."},
	{`spamhaus|\bSBL\d+|\bCSS\b.*spam|\bXBL\b|\bPBL\b`, "Spamhaus lists the address of this host. Look it up at https://check.spamhaus.org, which says why and how it is taken off."},
	{`spamcop`, "SpamCop lists the address of this host because of reports on its mail. The listing ends by itself a day after the last report; see https://www.spamcop.net/bl.shtml."},
	{`sorbs|uceprotect|abuseat|surriel|psbl|mailspike|senderscore|invaluement`, "A block list has the address of this host. The answer names the list; ask there for it to be taken off."},
	{`cloudmark|csi\.cloudmark`, "Cloudmark blocks the address of this host. Ask for it to be taken off at https://csi.cloudmark.com/en/reset/."},
	{`5\.7\.1\b.*(block ?list|blacklist|black list|\bRBL\b|\bDNSBL\b|listed (at|in|by|on))`, generalAdvice},
	{`\b(blocked|rejected|refused|denied)\b.*(using|by|due to|because of).*(block ?list|blacklist|\bRBL\b|\bDNSBL\b|zen\.|bl\.|dnsbl)`, generalAdvice},
	{`(your|sending|client) (ip|host|server|address|mta).*(block ?list|blacklist|blocked|banned)`, generalAdvice},
	{`(ip|host|server|sender|domain).*(reputation).*(low|poor|bad)|(low|poor|bad) (ip |sender |domain )?reputation`, "The receiver refuses mail for the reputation of this host or domain. Send less for some days, only to people who expect it, and see that SPF, DKIM and DMARC are right."},
}

const generalAdvice = "The receiver blocks the address of this host. Its answer says which list that is, and where to ask for it to be taken off."

// Google's answers have no wording of their own, but they link to a page for each reason. So an
// answer must match both patterns.
const (
	fromGoogle   = `gsmtp\s*$|support\.google\.com/mail`
	googleBlocks = `unsolicited|rate that|very low reputation|UnsolicitedMessageError|UnsolicitedRateLimitError|IPReputation|p=(UnsolicitedMessageError|bulk|senderguidelines|IPReputation)`
)

const googleAdvice = "Gmail holds mail of this host or domain to be unwanted. See https://postmaster.google.com for its reputation, send less, only to people who expect it, and let them unsubscribe with one click."

// blockExpressions returns the patterns, compiled at the first use: fromGoogle, googleBlocks, then
// those of blocks.
var blockExpressions = sync.OnceValue(func() (out []*regexp.Regexp) {
	for _, b := range append([]block{{pattern: fromGoogle}, {pattern: googleBlocks}}, blocks...) {
		out = append(out, regexp.MustCompile(`(?i)`+b.pattern))
	}
	return out
})

// adviceOn reports whether a receiver's answer blocks this host or sender, and returns what to do
// about it.
func adviceOn(reply string) (advice string, blocked bool) {
	all := blockExpressions()
	if all[0].MatchString(reply) {
		return googleAdvice, all[1].MatchString(reply)
	}
	for i, b := range blocks {
		if all[2+i].MatchString(reply) {
			return b.advice, true
		}
	}
	return "", false
}
