package codes

import (
	"strings"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// Patterns for texts that ask for a code without naming it, such as "use this to sign in". useThis
// matches the request to use the text that follows; it does not match requests to use something
// else, such as a link, a reference or an address. toSignIn matches the purpose.
var (
	useThis = lazyregexp.New(`(?i)(?:\b(?:use|enter|type(?: in)?|copy|paste|submit|provide|input|key in)(?: just| only)? (?:this|these|it|below|the below|the following|(?:this|these|the|the following|your)(?: one[- ]time| temporary)? (?:numbers?|digits?|characters?|letters?|password|token|sequence|combination|key))` +
		`(?: below| here| that follows?)?(?: (?:to|for|in|on|when|if|within|and|at|as)\b|\s*[:,.;]|\s*$)|` +
		`\b(?:verwende[nt]?|benutze[nt]?|nutze[nt]?|gib|gebt|geben|tippe[nt]?|kopiere[nt]?)(?: sie| bitte)* (?:dies(?:es)?|folgendes|das folgende|(?:diese|die|die folgenden?) (?:nummer|zahl|ziffern|zeichen|zeichenfolge|zahlenfolge)|(?:dieses|das folgende) (?:passwort|kennwort))(?:[ ,.:]|$)|` +
		`\b(?:utilise[rz]?|saisi(?:r|s|ssez)|entrez?|tapez?|copiez?|indiquez?) (?:ceci|cela|ce qui suit|(?:ce|le) (?:numéro|nombre|mot de passe)|(?:ces|les) (?:chiffres|caractères))(?:[ ,.:]|$)|` +
		`\b(?:us[ae]|utili[zc][ae]|introdu(?:ce|zca)|ingres[ae]|escrib[ae]|copi[ae]) (?:esto|lo siguiente|(?:este|el|el siguiente) número|(?:estos|los|los siguientes) (?:números|dígitos|caracteres)|(?:estas|las|las siguientes) cifras)(?:[ ,.:]|$)|` +
		`\b(?:us[ai]|utilizz[ai]|inserisc[ia]|digit[ai]|copi[ai]?) (?:questo|quanto segue|(?:questo|il|il seguente) numero|(?:questi|i|i seguenti) (?:numeri|caratteri)|(?:queste|le|le seguenti) cifre)(?: (?:per|qui)|[,.:]|$)|` +
		`\b(?:us[ea]|utilize|insira|introduza|digite|copie) (?:isto|isso|o seguinte|(?:este|o|o seguinte) número|(?:estes|os|os seguintes) (?:números|dígitos|caracteres))(?: (?:para|abaixo)|[,.:]|$)|` +
		`\b(?:gebruik|voer|typ|vul|kopieer) (?:dit|het volgende|(?:dit|het|het volgende) nummer|(?:deze|de|de volgende) (?:cijfers|tekens))(?: (?:om|in|hieronder|voor)|[,.:]|$)|` +
		`(?:użyj|wpisz|wprowadź|podaj|skopiuj) (?:to|tego|(?:ten|tego|poniższy|poniższego|następujący) (?:numer|numeru|ciąg)|(?:te|tych|poniższe|poniższych|następujące) (?:cyfry|cyfr|znaki|znaków))(?:[ ,.:]|$)|` +
		`(?:použij(?:te)?|zadej(?:te)?|opiš(?:te)?) (?:toto|následující|(?:toto|tato|tyto|následující) (?:číslo|čísla|číslice|znaky))(?: (?:pro|k)|[,.:]|$)|` +
		`\b(?:använd|ange|skriv in|brug|indtast|bruk|skriv inn|tast inn) (?:detta|dette|det här|det|följande|følgende)(?: (?:nummer|numret|nummeret|tal|siffror|sifre|tegn|tecken))?(?: (?:för|for)|[,.:]|$)|` +
		`(?:käytä|syötä|kirjoita) (?:tätä|tämä|seuraava|seuraavaa|(?:nämä|seuraavat) (?:numerot|merkit))(?:[ ,.:]|$)|` +
		`(?:bunu|şunu|aşağıdakini|(?:bu|aşağıdaki) (?:numarayı|sayıyı|rakamları)) (?:kullan|gir|yaz)|` +
		`(?:использу\p{L}+|введит?\p{L}*|набери\p{L}*|скопиру\p{L}+) (?:это|следующее|(?:это|следующее) число|(?:этот|следующий) номер|(?:эти|следующие) (?:цифры|символы))(?:[ ,.:]|$)|` +
		`(?:використай\p{L}*|використову\p{L}+|введіть) (?:це|наступне|(?:це|наступне) число|(?:ці|наступні) (?:цифри|символи))(?:[ ,.:]|$)|` +
		`(?:χρησιμοποιήστε|εισ[αά]γ[αά]γετε|πληκτρολογήστε) (?:αυτό|αυτά|το παρακάτω|τα παρακάτω|τον αριθμό|τον παρακάτω αριθμό)|` +
		`(?:使用|输入|輸入|填写|填寫|[请請]用)(?:以下|下面|下列|此|该|該|[这這]个|這個)(?:的)?(?:数字|數字|字符|字元|号码|號碼|密码|密碼|内容|內容)?(?:[来來以]|登|进行|進行|完成|[:;,]|$)|` +
		`(?:以下|次|下記|こ)の?(?:数字|番号|文字列|文字|もの|れ)を(?:ご?入力|ご?使用|使って|ご?利用)|` +
		`(?:다음|아래|이)(?:의)? ?(?:숫자|번호|문자|값|것)[를을] ?(?:입력|사용)|` +
		`(?:dùng|sử dụng|nhập) (?:số|dãy số|những số) ?(?:này|sau|dưới đây)|` +
		`(?:استخدم|استعمل|[أا]دخل) (?:هذا الرقم|هذه الأرقام|ما يلي|التالي|هذا)(?:[ ,.:]|$)|` +
		`(?:השתמשו?|השתמשי|הזן|הזיני|הזינו|הקלד|הקלידו) (?:בזה|את זה|במספר|את המספר|בספרות|את הספרות)|` +
		`(?:ใช้|ป้อน|กรอก)(?:ตัวเลข|หมายเลข|สิ่ง)?(?:นี้|ต่อไปนี้|ด้านล่าง)|` +
		`(?:इसका|इस संख्या का|नीचे दी गई संख्या का) (?:उपयोग|इस्तेमाल)|(?:इसे|यह संख्या|निम्न संख्या) दर्ज)`)

	// useVerb matches a verb at the end of a text, after which the code follows as its object.
	useVerb = lazyregexp.New(`(?i)(?:^|[\s,:;(>])(?:use|enter|type(?: in)?|submit|input|(?:verwende[nt]?|benutze[nt]?|nutze[nt]?|gib|gebt|geben|tippe[nt]?)(?: sie| bitte)*|utilise[rz]?|saisi(?:s|ssez)|entrez?|tapez?|` +
		`us[ae]|utili[zc][ae]|introdu(?:ce|zca)|ingres[ae]|escrib[ae]|us[ai]|utilizz[ai]|inserisc[ia]|digit[aie]|insira|introduza|gebruik|voer|typ|użyj|wpisz|wprowadź|podaj|použij(?:te)?|zadej(?:te)?|` +
		`använd|ange|skriv in|brug|indtast|bruk|tast inn|käytä|syötä|введит?\p{L}*|использу\p{L}+|введіть|використай\p{L}*|χρησιμοποιήστε|πληκτρολογήστε|请?使用|請?使用|请?输入|請?輸入|dùng|nhập|استخدم|أدخل|הזן|הזינו|ใช้|ป้อน)[\s:"'“„«*(]*$`)

	toSignIn = lazyregexp.New(`(?i)(?:\b(?:sign(?:ing)?[- ]?(?:in|into|on|up)|log(?:ging)?[- ]?(?:in|into|on)|verify|verification|confirm|authenticate|activate|unlock|(?:complete|finish) (?:your |the )?(?:registration|set-?up|login)|reset (?:your|the) password|prove)\b|` +
		`anmeld|anzumelden|einlogg|einzuloggen|bestätig|verifizier|registrier|freischalt|freizuschalten|aktivier|` +
		`connecter|connexion|vérifi|confirmer|valider|activer|identifier|inscription|` +
		`iniciar (?:a )?sesi[óo]n|inicio de sesi[óo]n|\bacceder|\bentrar\b|verificar|confirmar|activar|registr|` +
		`\baccedere|\baccesso|verificare|confermare|attivare|` +
		`iniciar (?:a )?sessão|\bacessar|\baceder|\bativar|cadastr|` +
		`in te loggen|inloggen|aan te melden|aanmelden|bevestig|verifi[eë]|activer|` +
		`zalogować|logowani|potwierdz|weryfik|aktywować|přihl[aá][sš]|potvr[dz]|ověř|` +
		`logga in|inloggning|logge (?:ind|inn|på)|bekräft|bekræft|bekreft|verifier|aktiver|kirjautu|vahvist|` +
		`giriş|oturum aç|doğrula|onayla|вход|войти|подтвер|активир|вхід|увійти|підтвер|` +
		`συνδεθ|σύνδεση|επιβεβαι|επαληθ|登录|登錄|登入|验证|驗證|确认|確認|激活|注册|註冊|ログイン|サインイン|認証|登録|로그인|인증|확인|가입|` +
		`đăng nhập|xác (?:minh|nhận|thực)|تسجيل الدخول|تأكيد|للتحقق|להתחבר|התחברות|להיכנס|כניסה|לאמת|אימות|לאשר|เข้าสู่ระบบ|ยืนยัน|साइन इन|लॉग ?इन|सत्याप|पुष्टि)`)

	sentenceEnd = lazyregexp.New(`[.!?。！？\x{ffff}](?:\s|$)|[。！？\x{ffff}]`)
)

// maxSentence is how many bytes of a sentence are examined.
const maxSentence = 300

// isAskedFor reports whether the sentence before the span, or the sentence around it, asks the
// reader to sign in with the text at the span. The span is in line i. alone says that the line has
// nothing else.
func isAskedFor(lines []line, i int, span []int, alone bool) bool {
	text := lines[i].text
	before := strings.TrimRight(text[:span[0]], " \t*_\"'“„«([")
	for back := i - 1; back >= max(1, i-3); back-- { // the lines before, but not the subject
		if !alone && len(candidates(lines[back].text)) > 0 {
			break
		}
		before = lines[back].text + " " + before
	}
	if alone {
		before = strings.TrimRight(before, " .!。")
	}
	before = strings.ToValidUTF8(before[max(0, len(before)-maxSentence):], "")
	if ends := sentenceEnd().FindAllStringIndex(before, -1); len(ends) > 0 {
		before = before[ends[len(ends)-1][1]:]
	}
	after := text[span[1]:]
	if end := sentenceEnd().FindStringIndex(after); end != nil {
		after = after[:end[0]]
	}
	after = after[:min(len(after), maxSentence)]
	if useVerb().MatchString(before) {
		return toSignIn().MatchString(before) || toSignIn().MatchString(after)
	}
	return useThis().MatchString(before) && toSignIn().MatchString(before)
}
