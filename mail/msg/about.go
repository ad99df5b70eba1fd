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

// What says that an address is not there, that its domain is not, that it is out of use, and
// that its mailbox is full, in lower case.
const (
	unknownWords = "user unknown|unknown user|no such user|no such local user|no such person|no such account|no such recipient|no such mailbox|no mailbox here by that name|mailbox not found|" +
		"user not found|recipient not found|recipientnotfound|not found by smtp address lookup|unknown recipient|unknown local part|unknown address|address unknown|recipient unknown|" +
		"account unknown|unknown account|invalid recipient|invalid mailbox|invalid address|invalid user|invalid final delivery userid|no valid recipient|no such address|address not found|unrouteable address|" +
		"address couldn't be found|address could not be found|user not exist|user does not exist|user doesn't exist|mailbox does not exist|mailbox doesn't exist|address does not exist|address doesn't exist|" +
		"account does not exist|account doesn't exist|recipient does not exist|recipient doesn't exist|account that you tried to reach does not exist|doesn't have a|does not have a|" +
		"not listed in|not our customer|no account by that name|check if address is correct|destination mailbox has moved|" +
		"用户不存在|收件人不存在|地址不存在|邮箱不存在|找不到收件人|找不到用户|用戶不存在|收件人地址不存在|帐号不存在|账号不存在|宛先が見つかりません|宛先不明|宛先が存在しません|ユーザーが見つかりません|ユーザが見つかりません|" +
		"アドレスが見つかりません|メールアドレスが存在しません|ディレクトリには見つかりません|ディレクトリのリストにありません|존재하지 않는 사용자|존재하지 않는 주소|unbekannter empfänger|empfänger unbekannt|benutzer unbekannt|adresse existiert nicht|" +
		"postfach existiert nicht|utilisateur inconnu|destinataire inconnu|adresse n'existe pas|utilisateur n'existe pas|destinataire n'existe pas|usuario desconocido|destinatario desconocido|dirección no existe|usuario no existe|buzón no existe|utente sconosciuto|destinatario sconosciuto|" +
		"usuário desconhecido|endereço não existe|usuário não existe|пользователь не найден|адрес не существует|пользователь не существует|nieznany użytkownik|adres nie istnieje|użytkownik nie istnieje"
	domainWords = "host not found|domain not found|domain name not found|no such domain|no such host|unrouteable mail domain|host unknown|unknown host|unknown domain|invalid domain|invalid host|illegal host/domain|" +
		"couldn't find any host|couldn't find a mail exchanger|non-existent host|non-existent domain|bad destination host|bad destination system|domain does not exist|domain doesn't exist|no mx found|no mx record|" +
		"could not find a gateway|domain is not reachable"
	disabledWords = "mailbox disabled|mailbox is disabled|account disabled|account is disabled|user disabled|user is disabled|disabled recipient|has been disabled|inactive user|user is inactive|user inactive|" +
		"account is inactive|account inactive|mailbox is inactive|mailbox inactive|reach is inactive|account has been suspended|mailbox is frozen|account is locked|account closed|mailbox closed|no longer valid|no longer in use|" +
		"no longer exists|no longer available"
	roomWords = "mailbox full|mailbox is full|mailfolder is full|mailbox is over|over quota|overquota|over the quota|quota exceeded|exceeded its quota|exceeded storage|insufficient storage|quota is exceeded|" +
		"exceeds allowed size|mailbox exceeded|mailbox exceeds|mailbox size limit|storage quota|disk quota|no space left|not enough disk space|out of storage|" +
		"邮箱已满|空间已满|信箱已满|容量已满|メールボックスがいっぱい|容量を超え|容量オーバー|postfach ist voll|postfach voll|boîte aux lettres pleine|boîte pleine|buzón lleno|buzón está lleno|casella piena|caixa cheia|ящик переполнен|skrzynka pełna"
)

// aboutWords are looked for in their order: first what names the sender, since many servers put
// that under the code of an address; then what names the address.
var aboutWords = []struct {
	about About
	words string
}{
	{AboutAddress, "mail exchanger or ip address|recipient account is blocked"}, // which name no sender, although they sound like it
	{AboutSender, "sender|mail from|mailfrom|from address|envelope from|return path|reputation|at a rate|rate limit|rate-limit|ratelimit|too many|too much mail|per hour|this hour|per day|throttl|" +
		"policy|policies|spf|dkim|dmarc|authentication|authenticat|not authorized|unauthorized|not permitted|prohibit|administrative|blacklist|block list|blocklist|blocked|banned|" +
		"spam|junk mail|unsolicited|virus|malware|content reject|rejected for|relay|client host|helo|ehlo|reverse dns|ptr record|rdns|your ip|ip address|your network|your server|your host|" +
		"(con:|we will not accept|not accepting mail from|greylist|graylist|temporarily deferred|bounce address tag|loop|recipient preferences|name was rejected|dns ptr"},
	{AboutRoom, roomWords},
	{AboutAddress, unknownWords + "|" + domainWords + "|" + disabledWords + "|mailbox unavailable"},
}

// AboutOf reads what a server answered. Addresses and links in it say nothing, and of an answer
// that a relay quotes only the quotation counts (5.1.0 - Unknown address error 550-'5.2.2 …
// Mailbox Full').
func AboutOf(answer string) About {
	var kept []string
	for _, word := range strings.Fields(strings.ToLower(answer)) {
		if strings.Contains(word, "://") {
			continue
		}
		if strings.Contains(word, "@") {
			word = word[:max(0, strings.IndexByte(word, '<'))] // FROM:<a@b.test>
		}
		if word != "" {
			kept = append(kept, word)
		}
	}
	text := strings.Join(kept, " ")
	if quoted := quotedReply(text); quoted != "" {
		text = quoted
	}
	for _, one := range aboutWords {
		if containsAny(text, one.words) {
			return one.about
		}
	}
	return AboutUnknown
}

// quotedReply is the answer of a host that a relay quotes in its own; "" if it quotes none.
func quotedReply(text string) string {
	if _, quoted, ok := strings.Cut(text, "-'"); ok {
		if end := strings.LastIndexByte(quoted, '\''); end > 0 {
			return quoted[:end]
		}
	}
	return ""
}

// containsAny tells whether one of the words, which | divides, is in the text.
func containsAny(text, words string) bool {
	for w := range strings.SplitSeq(words, "|") {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}
