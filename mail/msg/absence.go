package msg

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// isAbsence tells whether a subject is one that the large mail services and programs give to
// answers that they send for people who are away. Not all of them say so in the header.
func isAbsence(subject string) bool {
	s := strings.Join(strings.Fields(strings.ToLower(norm.NFKC.String(cut(subject, MaxText)))), " ")
	if absences[strings.TrimRight(s, " .!")] {
		return true
	}
	head, _, ok := strings.Cut(s, ":")
	return ok && absences[strings.TrimSpace(head)]
}

// absences are the words in front of the colon, or the whole subject.
var absences = wordSet(
	// Exchange, Outlook and Microsoft 365
	"automatic reply", "automatische antwort", "réponse automatique", "respuesta automática", "risposta automatica",
	"resposta automática", "automatisch antwoord", "automatiskt svar", "automatisk svar", "automatisk svar på", "automaattinen vastaus",
	"automatyczna odpowiedź", "odpowiedź automatyczna", "automatická odpověď", "automatická odpoveď", "automatikus válasz", "răspuns automat",
	"автоматический ответ", "автоматична відповідь", "αυτόματη απάντηση", "otomatik yanıt", "자동 회신", "自動応答", "自動回覆", "自动答复", "自动回复",
	"תשובה אוטומטית", "رد تلقائي", "out of office", "out of office autoreply", "out of office auto-reply", "out of the office",
	"abwesenheitsnotiz", "abwesend", "abwesenheit", "absence du bureau", "absent du bureau", "absence", "fuera de la oficina", "ausente de la oficina",
	"fuori sede", "fuori ufficio", "assente", "fora do escritório", "afwezig", "afwezigheidsbericht", "niet aanwezig", "frånvaro", "ikke til stede",
	"fravær", "poissa", "nieobecny", "poza biurem", "mimo kancelář", "нет на месте", "вне офиса", "ofis dışında", "不在", "不在通知", "외출 중", "부재중",
	// Gmail, Yahoo, Zoho, GroupWise, Notes, sieve and vacation(1)
	"auto", "autoreply", "auto-reply", "auto reply", "autoresponse", "auto-response", "auto response", "automated reply", "automated response",
	"automatic response", "autosvar", "auto-svar", "autoantwort", "auto-antwort", "auto-réponse", "autorespuesta", "away from my mail",
	"away from the office", "away from my email", "vacation", "vacation reply", "vacation message", "vacation response", "on vacation", "on holiday", "on leave",
	"annual leave", "maternity leave", "parental leave", "ooo", "urlaub", "im urlaub", "en vacances", "en congé", "de vacaciones", "in vacanza", "de férias",
)

func wordSet(words ...string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, w := range words {
		set[w] = true
	}
	return set
}
