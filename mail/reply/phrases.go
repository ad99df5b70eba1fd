package reply

import "strings"

// Phrases of mail programs in English, German, French, Spanish, Portuguese, Italian, Dutch and
// Polish, and some in other languages. All are in lower case.

// wroteVerbs are forms of "wrote".
var wroteVerbs = setOf("wrote", "writes", "schrieb", "schreibt", "geschrieben", "écrit", "escribió", "escribio", "escribe",
	"escreveu", "scritto", "scrive", "schreef", "geschreven", "schrijft", "napisał", "napisała", "napisał(a)", "pisze", "napisana", "napisano",
	"skrev", "kirjoitti", "napsal", "napsal(a)", "написал", "написала", "написал(а)", "пишет", "írta", "yazdı", "scris")

// introductionStarts are the first words of introductions such as "On Monday … wrote:".
var introductionStarts = []string{
	"on ", "am ", "le ", "el ", "em ", "no dia ", "a ", "às ", "il ", "op ", "w dniu ", "dnia ", "wiadomość napisana",
	"pon., ", "wt., ", "śr., ", "czw., ", "pt., ", "sob., ", "niedz., ", "nd., ",
	"poniedziałek, ", "wtorek, ", "środa, ", "czwartek, ", "piątek, ", "sobota, ", "niedziela, ",
	"den ", "på ", "dne ", "ma ", "mån ", "man. ",
}

// originalMarks are texts that precede a quoted or forwarded message, between dashes.
var originalMarks = setOf(
	"original message", "original appointment", "original email", "forwarded message", "forwarded email", "forwarded by", "reply message",
	"ursprüngliche nachricht", "original-nachricht", "originalnachricht", "urspr. nachricht", "weitergeleitete nachricht",
	"message d'origine", "message d’origine", "message original", "message transféré", "message transmis", "mail original", "mail transféré", "e-mail d'origine",
	"mensaje original", "mensaje reenviado", "mensaje de reenvío", "mensagem original", "mensagem encaminhada", "mensagem reencaminhada",
	"messaggio originale", "messaggio inoltrato", "oorspronkelijk bericht", "origineel bericht", "doorgestuurd bericht",
	"wiadomość oryginalna", "oryginalna wiadomość", "treść oryginalnej wiadomości", "wiadomość przekazana", "przekazana wiadomość",
	"wiadomość przesłana dalej", "treść przekazanej wiadomości", "forwarded message from",
	"ursprungligt meddelande", "oprindelig meddelelse", "oprindelig besked", "opprinnelig melding", "alkuperäinen viesti", "původní zpráva",
	"исходное сообщение", "пересылаемое сообщение")

// forwardMarks are texts that precede a forwarded message, without dashes; Apple's programs write
// them.
var forwardMarks = setOf(
	"begin forwarded message", "anfang der weitergeleiteten nachricht", "beginn der weitergeleiteten nachricht",
	"début du message réexpédié", "début du message transféré", "inicio del mensaje reenviado", "comienzo del mensaje reenviado",
	"início da mensagem reencaminhada", "início da mensagem encaminhada", "inizio messaggio inoltrato", "inizio del messaggio inoltrato",
	"begin doorgestuurd bericht", "begin van doorgestuurd bericht", "początek przekazywanej wiadomości", "początek przekazanej wiadomości")

// A label is a set of header fields that are shown above a quoted message.
type label uint8

const (
	fromField label = 1 << iota
	dateField
	toField
	subjectField
	otherField
	sentField // a date field whose name means "sent"
)

const maxLabel = 32 // bytes

var labelsByName = func() map[string]label {
	m := map[string]label{}
	for field, names := range map[label]map[string]bool{
		fromField: setOf("from", "von", "de", "da", "van", "od", "från", "fra", "lähettäjä", "от"),
		dateField: setOf("sent", "date", "sent on", "gesendet", "gesendet am", "datum", "envoyé", "envoyé le", "date d'envoi", "enviado", "enviado el",
			"enviado em", "enviada em", "enviada", "fecha", "message du", "data", "inviato", "verzonden", "wysłano", "wysłane", "skickat", "sendt", "dato", "lähetetty", "дата", "отправлено"),
		sentField:    setOf("sent", "gesendet", "envoyé", "enviado", "enviado el", "enviada em", "inviato", "verzonden", "wysłano", "отправлено"),
		toField:      setOf("to", "an", "à", "a", "para", "aan", "do", "till", "til", "destinataire", "destinatario", "vastaanottaja", "кому"),
		subjectField: setOf("subject", "betreff", "objet", "sujet", "asunto", "assunto", "oggetto", "onderwerp", "temat", "ämne", "emne", "aihe", "тема"),
		otherField: setOf("cc", "bcc", "kopie", "copie", "kopia", "dw", "udw", "reply-to", "reply to", "antwort an", "répondre à", "responder a",
			"importance", "wichtigkeit", "priorität", "attachments", "anlagen", "pièces jointes", "cco", "ccn", "copia", "kopi"),
	} {
		for name := range names {
			m[name] |= field
		}
	}
	return m
}()

// phoneStarts are the starts of lines that mail programs add below a message, by their first word.
var phoneStarts = byFirstWord(
	"sent from my ", "gesendet von meinem ", "gesendet von meiner ", "gesendet mit meinem ", "diese nachricht wurde von meinem ",
	"envoyé de mon ", "envoyé depuis mon ", "envoyé à partir de mon ", "envoyé via mon ", "envoyé de ma ",
	"enviado desde mi ", "enviado de mi ", "enviado do meu ", "enviado a partir do meu ", "enviado de meu ", "enviada do meu ",
	"inviato dal mio ", "inviato da mio ", "inviata dal mio ", "verstuurd vanaf mijn ", "verzonden vanaf mijn ", "verstuurd met mijn ", "verzonden met mijn ",
	"wysłane z mojego ", "wysłano z mojego ", "wysłane z moje", "wysłano z moje", "skickat från min ", "sendt fra min ",
	"get outlook for ", "outlook für ios", "outlook für android", "laden sie outlook für ", "holen sie sich outlook für ", "téléchargez outlook pour ", "télécharger outlook pour ",
	"obtenez outlook pour ", "obtenir outlook pour ", "obtener outlook para ", "descargar outlook para ", "obter o outlook para ", "obter outlook para ",
	"baixar o outlook para ", "baixe o outlook para ", "ottieni outlook per ", "scarica outlook per ", "outlook voor ios", "outlook voor android", "download outlook voor ",
	"pobierz program outlook ", "pobierz aplikację outlook ", "pobierz outlook ", "yahoo mail: search")

// sentWords are the first words of lines such as "Sent from my iPhone". One of sentByWords must
// follow, and the line must name a device or program.
var sentWords = setOf("sent", "gesendet", "verschickt", "envoyé", "enviado", "enviada", "inviato", "inviata", "verstuurd", "verzonden",
	"wysłane", "wysłano", "skickat", "sendt", "von")

var sentByWords = setOf("from", "with", "via", "using", "by", "on", "von", "vom", "mit", "aus", "über", "de", "du", "depuis", "à", "avec", "desde", "con",
	"do", "da", "dal", "dalla", "a", "através", "com", "vanaf", "met", "van", "uit", "z", "ze", "från", "fra", "med", "meinem", "meiner")

var deviceWords = setOf(
	"iphone", "ipad", "ipod", "android", "samsung", "galaxy", "huawei", "xiaomi", "redmi", "oneplus", "pixel", "nokia", "motorola", "sony", "blackberry",
	"outlook", "yahoo", "proton", "protonmail", "gmx", "aol", "gmail", "fairemail", "thunderbird", "windows", "tutanota", "tuta",
	"smartphone", "smartphona", "telefon", "telefonu", "téléphone", "teléfono", "telefone", "telefoon", "telefono", "mobile", "mobil", "mobiel",
	"móvil", "telemóvel", "celular", "cellulare", "komórki", "tablet", "tabletu", "handy", "phone", "app", "application", "aplikacji")

// listPhrases are phrases that occur in the footers of mailing lists.
var listPhrases = []string{
	"mailing list", "mailinglist", "mailing-list", "unsubscribe", "groups.io", "google groups", "to view this discussion", "list archive",
	"liste de diffusion", "désabonner", "désinscrire", "lista de correo", "darse de baja", "lista de discussão", "lista de distribuição", "cancelar a inscrição",
	"cancelar a subscrição", "lista di discussione", "disiscri", "mailinglijst", "afmelden", "uitschrijven", "abmelden", "abbestellen",
	"lista dyskusyjna", "listy dyskusyjnej", "wypisać", "wypisz się", "zrezygnować z subskrypcji",
}

func setOf(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

func byFirstWord(phrases ...string) map[string][]string {
	m := map[string][]string{}
	for _, p := range phrases {
		word, _, _ := strings.Cut(p, " ")
		m[word] = append(m[word], p)
	}
	return m
}
