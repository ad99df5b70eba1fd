package msg

import "strings"

// About says what an answer that refuses a message is about.
type About int

// What answers are about. AboutUnknown leaves it to the codes.
const (
	AboutUnknown About = iota
	AboutSender        // who sends, how much and from where, whatever code it has
	AboutAddress       // the address that was written to, which is not there or not in use
	AboutRoom          // a mailbox that is full
)

// aboutWords are looked for in their order, in lower case: first what names the sender, since many
// servers put that under the code of an address; then what names the address.
var aboutWords = []struct {
	about About
	words string
}{
	{AboutSender, "sender|mail from|from address|envelope from|return path|reputation|at a rate|rate limit|rate-limit|ratelimit|too many|too much mail|per hour|this hour|per day|throttl|" +
		"policy|policies|spf|dkim|dmarc|authentication|authenticat|not authorized|unauthorized|not permitted|prohibit|administrative|blacklist|block list|blocklist|blocked|banned|" +
		"spam|junk mail|unsolicited|virus|malware|content reject|rejected for|relay|client host|helo|ehlo|reverse dns|ptr record|rdns|your ip|ip address|your network|your server|your host|" +
		"(con:|we will not accept|not accepting mail from|greylist|graylist|temporarily deferred|bounce address tag|loop"},
	{AboutRoom, "mailbox full|mailbox is full|over quota|overquota|over the quota|quota exceeded|exceeded its quota|exceeded storage|insufficient storage|quota is exceeded|no space"},
	{AboutAddress, "user unknown|unknown user|no such user|no such local user|no such person|no such account|no such recipient|no such mailbox|no mailbox here by that name|mailbox not found|" +
		"user not found|recipient not found|recipientnotfound|not found by smtp address lookup|unknown recipient|unknown local part|unknown address|address unknown|invalid recipient|invalid mailbox|" +
		"no such address|unrouteable address|account that you tried to reach does not exist|mailbox does not exist|user does not exist|address does not exist|account does not exist|" +
		"recipient does not exist|user doesn't exist|doesn't have a|does not have a|mailbox disabled|mailbox is disabled|account disabled|account is disabled|user disabled|user is disabled|" +
		"has been disabled|inactive user|account is inactive|mailbox is inactive|mailbox inactive|account has been suspended|no longer valid|no longer in use|mailbox unavailable"},
}

// AboutOf reads what a server answered. Addresses and links in it say nothing.
func AboutOf(answer string) About {
	var kept []string
	for _, word := range strings.Fields(strings.ToLower(answer)) {
		if !strings.Contains(word, "@") && !strings.Contains(word, "://") {
			kept = append(kept, word)
		}
	}
	text := strings.Join(kept, " ")
	for _, one := range aboutWords {
		for words := range strings.SplitSeq(one.words, "|") {
			if strings.Contains(text, words) {
				return one.about
			}
		}
	}
	return AboutUnknown
}
