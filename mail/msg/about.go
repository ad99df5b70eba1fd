package msg

import (
	"regexp"
	"strings"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// RefusalSubject says what a server's refusal is about: the sender, the recipient's address, the
// recipient's mailbox, or the message.
type RefusalSubject int

// The possible subjects of a refusal. AboutUnknown means that the text does not say; callers then
// go by the reply codes.
const (
	AboutUnknown RefusalSubject = iota
	AboutSender                 // the sender, how much the sender sends, or the sending host
	AboutAddress                // the recipient's address: it does not exist or is not in use
	AboutRoom                   // the recipient's mailbox: it is full
	AboutMessage                // the message's size or format, or a problem on the way
)

// Phrases that say that an address does not exist, that a lookup failed for now, that a domain does
// not exist, that an address is disabled, or that a mailbox is full. They are in lower case and
// separated by |.
const (
	unknownPhrases = "user unknown|unknown user|no such user|no such local user|no such person|no such account|no such recipient|no such mailbox|no mailbox here by that name|mailbox not found|" +
		"user not found|recipient not found|recipientnotfound|not found by smtp address lookup|unknown recipient|unknown local part|unknown address|address unknown|recipient unknown|" +
		"account unknown|unknown account|invalid recipient|invalid mailbox|invalid address|invalid user|invalid final delivery userid|no valid recipient|no such address|address not found|unrouteable address|" +
		"address couldn't be found|address could not be found|user not exist|user does not exist|user doesn't exist|mailbox does not exist|mailbox doesn't exist|address does not exist|address doesn't exist|" +
		"account does not exist|account doesn't exist|recipient does not exist|recipient doesn't exist|account that you tried to reach does not exist|doesn't have a|does not have a|" +
		"not listed in|not our customer|no account by that name|check if address is correct|destination mailbox has moved|" +
		"用户不存在|收件人不存在|地址不存在|邮箱不存在|找不到收件人|找不到用户|用戶不存在|收件人地址不存在|帐号不存在|账号不存在|宛先が見つかりません|宛先不明|宛先が存在しません|ユーザーが見つかりません|ユーザが見つかりません|" +
		"アドレスが見つかりません|ユーザーが存在しません|ユーザが存在しません|アドレスが存在しません|受信者が見つかりません|メールアドレスが存在しません|ディレクトリには見つかりません|ディレクトリのリストにありません|존재하지 않는 사용자|존재하지 않는 주소|unbekannter empfänger|empfänger unbekannt|benutzer unbekannt|adresse existiert nicht|" +
		"postfach existiert nicht|utilisateur inconnu|destinataire inconnu|adresse n'existe pas|utilisateur n'existe pas|destinataire n'existe pas|usuario desconocido|destinatario desconocido|dirección no existe|usuario no existe|buzón no existe|utente sconosciuto|destinatario sconosciuto|" +
		"usuário desconhecido|endereço não existe|usuário não existe|пользователь не найден|адрес не существует|пользователь не существует|nieznany użytkownik|adres nie istnieje|użytkownik nie istnieje"
	lookupPhrases = "not found, try again|temporary lookup failure|nameserver timeout|temporarily unable to look up"
	domainPhrases = "host not found|domain not found|domain name not found|no such domain|no such host|unrouteable mail domain|host unknown|unknown host|unknown domain|invalid domain|invalid host|illegal host/domain|" +
		"couldn't find any host|couldn't find a mail exchanger|non-existent host|non-existent domain|bad destination host|bad destination system|domain does not exist|domain doesn't exist|no mx found|no mx record|no mx or a record|" +
		"could not find a gateway|domain is not reachable"
	disabledPhrases = "mailbox disabled|mailbox is disabled|account disabled|account is disabled|user disabled|user is disabled|disabled recipient|has been disabled|inactive user|user is inactive|user inactive|" +
		"account is inactive|account inactive|mailbox is inactive|mailbox inactive|reach is inactive|account has been suspended|mailbox is frozen|account is locked|account closed|mailbox closed|no longer valid|no longer in use|" +
		"no longer exists|no longer available"
	fullPhrases = "mailbox full|mailbox is full|full mailbox|mailfolder is full|mailbox is over|mailbox over|inbox is full|inbox full|storage full|quota|storage|no room|" +
		"exceeds allowed size|mailbox exceed|mailbox would exceed|mailbox size|mailfile size|mailbox limit|space left|enough space|disk space|disc space|space limit|space has been used up|user is over flow|" +
		"邮箱已满|空间已满|信箱已满|容量已满|メールボックスがいっぱい|容量を超え|容量オーバー|postfach ist voll|postfach voll|boîte aux lettres pleine|boîte pleine|buzón lleno|buzón está lleno|casella piena|caixa cheia|ящик переполнен|skrzynka pełna"
)

// aboutPhrases maps phrases to subjects; the first match counts. Phrases about the sender come
// before those about the address, since many servers send them with the reply code for a bad
// address.
var aboutPhrases = []struct {
	about   RefusalSubject
	words   string
	pattern func() *regexp.Regexp // tried if none of words matches; nil for most
}{
	{AboutUnknown, "recipient address rejected: access denied", nil},                 // Exchange means an unknown user, Postfix a refusal, so only the reply code distinguishes them
	{AboutAddress, "mail exchanger or ip address|recipient account is blocked", nil}, // exceptions: these contain words of the next row, but are not about the sender
	{AboutSender, "sender|mail from|mailfrom|from address|envelope from|envelope-from|return path|return-path|originator|forged|spoof|your domain|" +
		"reputation|at a rate|rate limit|rate-limit|ratelimit|too much mail|too many|too quickly|faster than|volume|frequency|per hour|this hour|hourly|per day|daily|throttl|complain|" +
		"policy|policies|spf|dkim|dmarc|signature|seal |authenticat| auth |starttls|tls required|not authorized|unauthorized|not permitted|not allowed|prohibit|administrative|" +
		"denied|forbidden|access refused|access from|restricted|permission|only accepts|members only|only members|members may|not a member|subscriber|" +
		"blacklist|black list|block list|blocklist|blocked|banned| rbl |dnsbl|listed at|listed on a|is listed|spam|junk|bulk |unsolicited|advertis|phish|fraud|suspicious|suspect|virus|malware|infected|dangerous|content|scanner|filter| rule | rules |" +
		"rejected for|rejected by recipients|rejected by destination|refused by rule|does not want|go away|relaying|relay access|relay denied|relay not|to relay|open relay|as a relay|relay disallowed|" +
		"client host|helo|ehlo|reverse dns|ptr|rdns|your ip|ip address|dynamic ip|your network|your server|your host|your country|callout|callback|" +
		"(con:|(rly:|will not accept|not accepting mail from|greylist|graylist|temporarily deferred|bounce address tag|bounce attack|loop|recipient preferences|name was rejected", nil},
	{AboutRoom, fullPhrases, nil},
	{AboutMessage, lookupPhrases + "|message size|too large|too big|maximum size|attachment|header|message-id|duplicate message|line too long|hop count|" +
		"8bitmime|smtputf8|mailing list expansion|limit", nil},
	{AboutAddress, unknownPhrases + "|" + domainPhrases + "|" + disabledPhrases + "|mailbox unavailable", absentAddress},
	{AboutMessage, "internal error|system error|server error|configuration error|server busy|service unavailable|server unavailable|temporary|temporarily|not accepting network", nil},
}

// Regular expressions for words that mean an address or a domain, and for words that say that an
// address does not exist (unknownPattern) or is no longer in use (disabledPattern). They are the
// parts of absentAddress, which does not combine disabledPattern with domainPattern: a host can be
// closed or unavailable and still exist.
const (
	mailboxPattern  = `(?:mail ?box|inbox|user(?: ?name| ?id)?|recipient|addressee|(?:e-?mail )?(?:address|account)|alias|person|maildrop|local[- ]part|destination|employee)(?:e?s)?`
	domainPattern   = `(?:(?:mail )?(?:domain|host)(?: ?name)?)`
	unknownPattern  = `(?:unknown|not(?: a| an)?(?: valid| active| known| current)?(?: recipient| user| mailbox| address| account| customer)?(?: at| on| in)?(?: this| the| our| my)? ?(?:known|found|exist|hosted|here|local|valid|active|listed|present|recogni[sz]ed|host|site|server|system|directory|list)|n't exist|non-?existent)`
	disabledPattern = `(?:no longer|unavailable|invalid|inactive|deactivated|disabled|closed|deleted|removed|terminated|suspended|discontinued|expired|retired|obsolete|locked|frozen|archived|misspelled)`
)

// absentAddress matches a sentence that says that an address does not exist or is not in use.
var absentAddress = lazyregexp.New(`\b` + mailboxPattern + `\b(?:[^.;!:]|\.[^ ]){0,40}\b(?:` + unknownPattern + `|` + disabledPattern + `)|\b` + domainPattern + `\b(?:[^.;!:]|\.[^ ]){0,40}\b` + unknownPattern + `|` +
	`\b(?:no|no such|no valid|not an?|not a valid|not a known|not an active|unknown|invalid|bad|illegal|malformed|undeliverable|deactivated|suspended|non-?existent)(?: (?:local|virtual|remote|mail|e-?mail|destination|valid|such|known|active))* (?:` + mailboxPattern + `|` + domainPattern + `)\b|` +
	`\bno one at this address|do(?:es)? not know *$|\bbad(?:rcptto|recipientto)|\bvalidrcptto`)

// RefusalSubjectOf returns what a refusal is about, judged by answer, the text of the server's
// reply. It ignores addresses and links in the text. If a relay quotes another host's reply, as in
// "550-'5.2.2 … Mailbox Full'", only the quoted reply counts.
func RefusalSubjectOf(answer string) RefusalSubject {
	text := withoutAddresses(answer)
	if quoted := quotedReply(text); quoted != "" {
		text = quoted
	}
	for _, one := range aboutPhrases {
		if containsAnyPhrase(text, one.words) || one.pattern != nil && one.pattern().MatchString(text) {
			return one.about
		}
	}
	return AboutUnknown
}

// withoutAddresses returns the text in lower case without addresses and links, with a space at each
// end.
func withoutAddresses(text string) string {
	kept := []string{""}
	for _, word := range strings.Fields(strings.ToLower(text)) {
		if strings.Contains(word, "://") {
			continue
		}
		if strings.Contains(word, "@") {
			word = word[:max(0, strings.IndexByte(word, '<'))] // keep "from:" of from:<a@b.test>
		}
		if word != "" {
			kept = append(kept, word)
		}
	}
	return strings.Join(append(kept, ""), " ")
}

// quotedReply returns the reply of another host that a relay quotes in its own reply, "" if there
// is none.
func quotedReply(text string) string {
	if _, quoted, ok := strings.Cut(text, "-'"); ok {
		if end := strings.LastIndexByte(quoted, '\''); end > 0 {
			return quoted[:end]
		}
	}
	return ""
}

// containsAnyPhrase reports whether the text contains one of the phrases, which are separated by |.
func containsAnyPhrase(text, phrases string) bool {
	for w := range strings.SplitSeq(phrases, "|") {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}
