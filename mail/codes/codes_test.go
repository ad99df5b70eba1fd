package codes_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/codes"
)

// messages are such as services write, with the code that a person would type; "" where there is
// none, or where a person would have to ask.
var messages = []struct{ name, subject, text, code string }{
	// English.
	{"plain", "Your verification code", "Your verification code is 482913. It expires in 10 minutes.", "482913"},
	{"in the subject", "731904 is your Harbour code", "Hello,\n\nenter the code above to continue.\n", "731904"},
	{"alone on a line", "Confirm your email", "Enter this code to confirm your address:\n\n  608214\n\nIf you did not ask for it, ignore this mail.\n", "608214"},
	{"letter and dash", "Verification Code", "Use this code to finish signing in:\n\nG-519283\n", "G-519283"},
	{"dashes", "Confirm", "Your confirmation code:\n\nABC-D1F\n\nEnter it where you began to sign in.", "ABC-D1F"},
	{"digits with a dash", "Login code", "Your login code: 123-456", "123-456"},
	{"digits with a space", "Login code", "Here is your security code:\n\n 493 017\n\nThanks", "493017"},
	{"capital letters and digits", "Your account", "Here is the code you need to log in to account harbourmaster:\n\nF4K9P\n\nThis email was generated because of a login attempt from 192.0.2.7 on 2026-11-27.", "F4K9P"},
	{"four digits", "OTP", "OTP: 4071", "4071"},
	{"one-time password", "Sign in", "Your one-time password is 88120347. Do not share it with anyone.", "88120347"},
	{"PIN", "Your PIN", "PIN 5521 is valid for 15 minutes.", "5521"},
	{"code behind", "Sign in to Lamp", "Type 330918 as your code within 5 minutes.", "330918"},
	{"with a year in the footer", "Your code", "Your code is 774120\n\n© 2026 Harbour Ltd, 1600 Quay Road, 94043 Bay\n", "774120"},
	{"a code that is a year", "Your code", "Your code is 2041\n\n© 2026 Harbour Ltd", "2041"},
	{"with a phone number", "Your code", "Security code: 903311\nNot you? Call +1 800 555 0199 or 800-555-0199.", "903311"},
	{"with an order", "Confirm your order 11028837", "Order #11028837\nTo confirm it enter the code 64021 in the shop.", "64021"},
	{"twice the same", "118822 is your code", "Your code is 118822.", "118822"},
	{"with and without a dash", "Your code is 118822", "Your code:\n118-822\n", "118822"},
	{"in quotation marks", "Verify", "Please enter the code “925 147” to verify.", "925147"},
	{"bold by asterisks", "Verify", "Your verification code is *602913*.", "602913"},
	{"in brackets", "Verify", "[Harbour] 602914 (verification code)", "602914"},
	{"in a link beside", "Verify", "Your code is 602915.\nOr open https://harbour.test/verify?code=999999&u=123456", "602915"},
	{"with the time", "Sign-in", "Sign-in at 14:05:22 on 27-11-2026.\nVerification code: 710046", "710046"},
	{"full-width digits", "Code", "Your code is ６０２９１６", "602916"},
	{"zero width", "Code", "Your code is 60\u200b2917", "602917"},
	{"two-factor", "2FA", "Your 2FA code\n\n005512", "005512"},
	{"the words after", "Sign in", "448190\n\nis your sign-in code.", "448190"},
	{"lines between", "Hello", "Your verification code\n\nfor Harbour:\n\n819203", "819203"},

	// Other languages.
	{"German", "Ihr Bestätigungscode", "Guten Tag,\n\nIhr Bestätigungscode lautet: 551093\n\nEr gilt 30 Minuten.", "551093"},
	{"German TAN", "Ihre TAN", "Ihre TAN: 220 417\nKundennummer 40081122", "220417"},
	{"German with a postcode", "Sicherheitscode", "Sicherheitscode: 40912\n\nHafen GmbH, Kai 3, 20457 Hamburg, Telefon 040-1234567", "40912"},
	{"French", "Votre code de vérification", "Votre code de vérification est 306 114. Il expire dans 10 minutes.", "306114"},
	{"French alone", "Connexion", "Voici votre code :\n\n771203\n\n75001 Paris", "771203"},
	{"Spanish", "Código de verificación", "Tu código de verificación es 903847.", "903847"},
	{"Italian", "Codice di verifica", "Il tuo codice di verifica è: 118273\nP.IVA 01234567890", "118273"},
	{"Portuguese", "Seu código", "Seu código de acesso é 602 118", "602118"},
	{"Dutch", "Je verificatiecode", "Je verificatiecode is 550912. Deel deze met niemand.", "550912"},
	{"Polish", "Kod weryfikacyjny", "Twój kod weryfikacyjny: 884120", "884120"},
	{"Czech", "Ověřovací kód", "Váš ověřovací kód je 775511.", "775511"},
	{"Swedish", "Din kod", "Din engångskod är 664422.", "664422"},
	{"Danish", "Din kode", "Din kode er 314159", "314159"},
	{"Finnish", "Vahvistuskoodi", "Vahvistuskoodi: 271828", "271828"},
	{"Turkish", "Doğrulama kodu", "Doğrulama kodunuz: 161803", "161803"},
	{"Russian", "Код подтверждения", "Ваш код подтверждения: 402913. Никому его не сообщайте.", "402913"},
	{"Ukrainian", "Код", "Ваш код: 8812", "8812"},
	{"Greek", "Κωδικός", "Ο κωδικός σας είναι 551177", "551177"},
	{"Chinese", "验证码", "您的验证码是：390281，5分钟内有效。", "390281"},
	{"Chinese, traditional", "驗證碼", "您的驗證碼為 390282", "390282"},
	{"Japanese", "認証コードのお知らせ", "認証コード：482913\n有効期限は10分です。", "482913"},
	{"Korean", "인증번호 안내", "인증번호 [730192]를 입력해 주세요.", "730192"},
	{"Vietnamese", "Mã xác minh", "Mã xác minh của bạn là 118002", "118002"},
	{"Hindi", "ओटीपी", "आपका ओटीपी 551201 है।", "551201"},
	{"Arabic", "رمز التحقق", "رمز التحقق الخاص بك هو 660912", "660912"},
	{"Hebrew", "קוד אימות", "קוד האימות שלך: 220199", "220199"},
	{"Thai", "รหัส", "รหัส OTP ของคุณคือ 771920", "771920"},

	// None, or none that is clear.
	{"nothing", "Hello", "See you at 10:30 on Friday.", ""},
	{"invoice", "Invoice 2026-10423", "Invoice number 202610423\nTotal: 1,240.00 EUR\nDue 2026-12-24", ""},
	{"order", "Your order 302-8841273", "Order 302-8841273 has been shipped. Tracking code: 1Z999AA1", ""},
	{"promo code", "20% off", "Use promo code SAVE2026 at checkout. Ends 31.12.2026.", ""},
	{"discount code", "For you", "Your discount code: HARBOUR20", ""},
	{"zip code", "Address", "Please check your zip code: 94043", ""},
	{"error code", "Backup failed", "The backup failed with error code 50012.", ""},
	{"phone", "Call us", "Call us at +49 40 1234567 or 0800 123456 if you have a code.", ""},
	{"price after a code word", "The Code of Conduct", "The code costs $1499 or 1499 EUR.", ""},
	{"years", "Building code 2026", "The code of 1999 was replaced in 2026.", ""},
	{"dates", "The code review", "The code review is on 2026-11-27, at 27-11-2026 or 11/27/2026.", ""},
	{"two codes", "Codes", "Your code for mail: 111222\nYour code for chat: 333444", ""},
	{"backup codes", "Your backup codes", "Backup codes:\n11112222\n33334444\n55556666", ""},
	{"only in a link", "Verify", "Enter the code at https://harbour.test/c/123456 please", ""},
	{"lower case", "Your code", "Your code is abc123", ""},
	{"too long", "Your code", "Your code is 12345678901", ""},
	{"no digit", "Your code", "Your code is HARBOUR", ""},
	{"customer number", "Welcome", "Your customer number is 40081122. You need no code.", ""},
	{"minutes", "Your code", "Your code comes in 1200 seconds.", ""},
	{"German voucher", "Gutschein", "Ihr Gutscheincode: WINTER26", ""},
	{"fiscal code", "Documenti", "Codice fiscale: 12345678", ""},
	{"source code", "New release", "The source code of release 20261127 is out.", ""},
	{"card", "Payment", "Paid with the card ending in 4242. Authorisation was quick.", ""},
}

// asked are messages that call nothing a code.
var asked = []struct{ name, subject, text, code string }{
	{"use this", "Sign in to Harbour", "Hi Ann,\n\nUse this to sign in to Harbour:\n\n482913\n\nIt expires in 10 minutes.\n\nHarbour Ltd, 1600 Quay Road, 94043 Bay", "482913"},
	{"on the same line", "Harbour", "Use this to sign in: 482913", "482913"},
	{"the following", "Harbour", "Please enter the following to log in to your account.\n\n F4K-9PQ \n\nIgnore this mail if you did not ask for it.", "F4K-9PQ"},
	{"the number below", "Harbour", "To verify your address, type the number below:\n\n4071\n", "4071"},
	{"over two lines", "Harbour", "Somebody wants to sign in. Please use the following number to sign in to your\nHarbour account:\n\n482 913\n", "482913"},
	{"between", "Harbour", "Hello!\n\nEnter 482913 to sign in.\n\nOrder 11028837 is on its way.", "482913"},
	{"the purpose first", "Harbour", "To finish signing in, enter 482913.", "482913"},
	{"a paste", "Harbour", "Copy and paste this to confirm your email: ABC12-34DEF", "ABC12-34DEF"},
	{"digits", "Harbour", "Enter these digits on the page where you began to log in:\n\n*88120347*\n", "88120347"},
	{"a password", "Harbour", "Use this one-time password to log in:\n\n881203\n\nQuestions? Call 0800 123456 or +1 800 555 0199.", "881203"},
	{"with a price", "Harbour", "Use this to confirm the payment of $1499: 482913", "482913"},
	{"in the subject", "Use 482913 to log into Harbour", "Hi Ann,\n\nthanks for coming back.\n", "482913"},
	{"as a password", "Harbour", "Use this as your password to log in:\n\n482913", "482913"},
	{"German", "Hafen", "Verwenden Sie dies zur Anmeldung:\n\n482913\n\n20457 Hamburg", "482913"},
	{"German, entering", "Hafen", "Bitte geben Sie 482913 ein, um sich anzumelden.", "482913"},
	{"German, digits", "Hafen", "Gib die folgenden Ziffern ein, um deine Adresse zu bestätigen:\n\n482 913", "482913"},
	{"French", "Port", "Saisissez les chiffres suivants pour vous connecter :\n\n482913\n\n75001 Paris", "482913"},
	{"French, between", "Port", "Utilisez 482913 pour vérifier votre adresse.", "482913"},
	{"Spanish", "Puerto", "Usa esto para iniciar sesión:\n\n482913", "482913"},
	{"Spanish, between", "Puerto", "Introduce 482913 para confirmar tu correo.", "482913"},
	{"Italian", "Porto", "Inserisci questo numero per accedere:\n\n482913", "482913"},
	{"Portuguese", "Porto", "Digite o seguinte para entrar:\n\n482913", "482913"},
	{"Dutch", "Haven", "Gebruik dit om in te loggen: 482913", "482913"},
	{"Polish", "Port", "Wpisz poniższe cyfry, aby się zalogować:\n\n482913", "482913"},
	{"Czech", "Přístav", "Zadejte následující číslo pro přihlášení:\n\n482913", "482913"},
	{"a long sentence", "港口", strings.Repeat("亲爱的用户，", 20) + "请使用 482913 登录", "482913"},
	{"Swedish", "Hamn", "Använd detta för att logga in: 482913", "482913"},
	{"Danish", "Havn", "Indtast følgende for at logge ind:\n\n482913", "482913"},
	{"Finnish", "Satama", "Käytä tätä kirjautuaksesi sisään:\n\n482913", "482913"},
	{"Turkish", "Liman", "Giriş yapmak için bunu kullanın:\n\n482913", "482913"},
	{"Russian", "Порт", "Введите эти цифры для входа:\n\n482913", "482913"},
	{"Ukrainian", "Порт", "Введіть ці цифри, щоб увійти:\n\n482913", "482913"},
	{"Greek", "Λιμάνι", "Χρησιμοποιήστε αυτό για να συνδεθείτε:\n\n482913", "482913"},
	{"Chinese", "港口", "请使用以下数字登录：\n\n482913", "482913"},
	{"Chinese, traditional", "港口", "請輸入以下數字以登入：482913", "482913"},
	{"Japanese", "港", "ログインするには、以下の数字を入力してください。\n\n482913", "482913"},
	{"Korean", "항구", "로그인하려면 아래 숫자를 입력하세요:\n\n482913", "482913"},
	{"Vietnamese", "Cảng", "Nhập số sau để đăng nhập:\n\n482913", "482913"},
	{"Arabic", "ميناء", "أدخل هذا الرقم لتسجيل الدخول:\n\n482913", "482913"},
	{"Hebrew", "נמל", "הזינו את המספר כדי להתחבר:\n\n482913", "482913"},
	{"Thai", "ท่าเรือ", "ใช้ตัวเลขนี้เพื่อเข้าสู่ระบบ:\n\n482913", "482913"},
	{"Hindi", "बंदरगाह", "साइन इन करने के लिए इसका उपयोग करें:\n\n482913", "482913"},

	{"two of them", "Harbour", "Use this to sign in:\n\n482913\n\n551093\n", ""},
	{"two on a line", "Harbour", "Use these to sign in: 482913 or 551093", ""},
	{"a link", "Harbour", "Use this link to sign in:\n\nhttps://harbour.test/l\n\n94043\n", ""},
	{"a link that is meant", "Harbour", "Use this to sign in:\n\nhttps://harbour.test/l\n\nQuestions?\n0800123456\n", ""},
	{"an order", "Harbour", "Use this to sign in and see your order. Order number: 11028837", ""},
	{"an order's number", "Harbour", "Use order number 11028837 to sign in.", ""},
	{"a customer", "Harbour", "Use this to sign in to your account: customer number 40081122", ""},
	{"a reference", "Harbour", "Use the following reference when you confirm the payment:\n\n11028837", ""},
	{"a phone number", "Harbour", "To verify your account, call 0800123456 today.", ""},
	{"a phone number with spaces", "Harbour", "Use this to confirm by phone: +49 40 1234567", ""},
	{"a year", "Harbour", "Use this to sign in:\n\n2026\n", ""},
	{"a year between", "Harbour", "Use the 2026 form to confirm your address.", ""},
	{"a price", "Harbour", "Use this to confirm the payment: $1499 or 1499 EUR", ""},
	{"a postcode", "Harbour", "To confirm your order, enter your address:\n\n20457\n", ""},
	{"a date", "Harbour", "Use this to sign in until 2026-11-27.", ""},
	{"no purpose", "Harbour", "Use this for your records:\n\n11028837", ""},
	{"only a purpose", "Sign in", "You can sign in again.\n\n11028837", ""},
	{"another sentence", "Harbour", "Use this to sign in. Your new meter shows\n\n11028837", ""},
	{"the subject asks", "Use this to confirm", "11028837", ""},
	{"German order", "Hafen", "Verwenden Sie dies zur Anmeldung. Bestellnummer 11028837", ""},
	{"German link", "Hafen", "Verwenden Sie diesen Link, um sich anzumelden:\n\nhttps://hafen.test/l\n\n11028837", ""},
	{"French price", "Port", "Utilisez ceci pour confirmer : 1499 €", ""},
	{"Spanish phone", "Puerto", "Para verificar llame al 900123456.", ""},
	{"Russian order", "Порт", "Введите это для входа. Заказ 11028837", ""},
}

func TestCodes(t *testing.T) {
	for _, m := range append(messages, asked...) {
		if got := codes.Find(m.subject, m.text, "").Code; got != m.code {
			t.Errorf("%s: %q, want %q", m.name, got, m.code)
		}
		markup := "<html><head><style>p{margin:100200}</style></head><body><p>" + strings.ReplaceAll(strings.ReplaceAll(m.text, "\n\n", "</p><p>"), "\n", "<br>") + "</p></body></html>"
		if got := codes.Find(m.subject, "", markup).Code; got != m.code {
			t.Errorf("%s, as HTML: %q, want %q", m.name, got, m.code)
		}
	}
	if len(messages) < 60 {
		t.Errorf("%d messages", len(messages))
	}
}

func TestLinks(t *testing.T) {
	for _, c := range []struct{ name, text, html, want string }{
		{"in order", "Open https://a.test/1 (or http://b.test/2).\nSee <https://c.test/3>.", "", "https://a.test/1|https://a.test/1 http://b.test/2|http://b.test/2 https://c.test/3|https://c.test/3"},
		{"once", "https://a.test/1 https://a.test/1", `<a href="https://a.test/1">Confirm  now</a>`, "https://a.test/1|Confirm_now"},
		{"from HTML", "", `<p>Hi <a href="https://a.test/x?a=1&amp;b=2">Go <b>on</b></a> <img src="https://a.test/open.gif"> <a href="mailto:a@b.test">w</a></p>`, "https://a.test/x?a=1&b=2|Go_on"},
		{"text before HTML", "https://b.test/", `<a href="https://a.test/">A</a>`, "https://b.test/|https://b.test/ https://a.test/|A"},
		{"images", "[https://a.test/logo.png]\nhttps://a.test/go", `<a href="https://a.test/big.JPG">x</a>`, "https://a.test/go|https://a.test/go"},
		{"alt text", "", `<a href="https://a.test/"><img alt="Harbour" src="https://a.test/l.png"></a>`, "https://a.test/|Harbour"},
		{"unsubscribe", "Go: https://a.test/1\nTo unsubscribe: https://a.test/u/7\nhttps://a.test/optout?x=1", `<a href="https://a.test/q">Abmelden</a><a href="https://a.test/r">Se désabonner</a>`, "https://a.test/1|https://a.test/1"},
		{"unsubscribe by its text in HTML", "https://a.test/q\nhttps://a.test/z", `<a href="https://a.test/q">Unsubscribe</a>`, "https://a.test/z|https://a.test/z"},
		{"odd schemes", "", `<a href="javascript:alert(1)">x</a><a href="//a.test/">y</a><a href="data:text/html,x">z</a><a href="https:opaque">o</a><a href="https://">e</a>`, ""},
		{"brackets in a path", "https://a.test/w/Harbour_(sea)", "", "https://a.test/w/Harbour_(sea)|https://a.test/w/Harbour_(sea)"},
		{"no end tag", "", `<a href="https://a.test/1">one<a href="https://a.test/2">two`, "https://a.test/1|one https://a.test/2|two"},
	} {
		var got []string
		for _, l := range codes.Find("", c.text, c.html).Links {
			got = append(got, l.URL+"|"+strings.ReplaceAll(l.Text, " ", "_"))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, strings.Join(got, " "), c.want)
		}
	}
	if n := len(codes.Find("", strings.Repeat("https://a.test/x https://b.test/y ", 1)+manyLinks(), "").Links); n != codes.MaxLinks {
		t.Errorf("%d links", n)
	}
}

func manyLinks() string {
	var b strings.Builder
	for i := range 100 {
		b.WriteString("https://a.test/" + strings.Repeat("z", i+1) + "\n")
	}
	return b.String()
}

func TestSameOrganisation(t *testing.T) {
	for _, c := range []struct {
		host, domain string
		same         bool
	}{
		{"harbour.test", "harbour.test", true}, {"www.harbour.test", "harbour.test", true}, {"login.harbour.co.uk", "mail.harbour.co.uk", true},
		{"evilharbour.test", "harbour.test", false}, {"harbour.test.evil.test", "harbour.test", false}, {"ann.github.io", "bob.github.io", false},
		{"a.co.uk", "b.co.uk", false}, {"harbour.test", "", false}, {"", "harbour.test", false}, {"192.0.2.1", "harbour.test", false},
	} {
		if got := codes.SameOrganisation(c.host, c.domain); got != c.same {
			t.Errorf("%s and %s: %t", c.host, c.domain, got)
		}
	}
}

// FuzzFind: whatever a stranger writes, what is found has the form that programs rely on.
func FuzzFind(f *testing.F) {
	for _, m := range messages {
		f.Add(m.subject, m.text, "")
		f.Add("", "", "<p>"+m.text+"<a href='https://a.test/1'>x</a>")
	}
	f.Add("code", strings.Repeat("code 1234 ", 500), strings.Repeat("<a href=https://a.test>", 300))
	f.Fuzz(func(t *testing.T, subject, text, markup string) {
		found := codes.Find(subject, text, markup)
		if c := found.Code; c != "" {
			plain := strings.ReplaceAll(c, "-", "")
			digits := strings.Count(strings.Map(func(r rune) rune {
				if r >= '0' && r <= '9' {
					return '0'
				}
				return r
			}, plain), "0")
			if strings.Trim(plain, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || digits == 0 || len(plain) > 10 || len(plain) < 4 || len(plain) < 5 && digits < len(plain) {
				t.Errorf("code %q", c)
			}
		}
		if len(found.Links) > codes.MaxLinks {
			t.Errorf("%d links", len(found.Links))
		}
		seen := map[string]bool{}
		for _, l := range found.Links {
			if seen[l.URL] || !strings.HasPrefix(l.URL, "http://") && !strings.HasPrefix(l.URL, "https://") || l.Host == "" {
				t.Errorf("link %+v", l)
			}
			seen[l.URL] = true
		}
	})
}
