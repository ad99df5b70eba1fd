// Package corpus generates junk mail and wanted mail from templates. It is used to build the start
// set of the classifier and to measure the classifier. It does not know how the classifier reads
// mail. The program does not import it.
package corpus

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"strings"
)

//go:embed *.txt
var templateFiles embed.FS

// A template is one message with placeholders. In the files, a line "%% kind language" begins a
// template, "S:" is its subject and "A:" the name of an attached file. [a|b] is a random choice,
// {x} a random value.
type template struct {
	spam           bool
	kind, language string
	subject, body  string
	attachment     string
	forMeasuring   bool // only for measuring, not used for the start set
}

// templates reads all templates. Every third template of a class and language is used only for
// measuring.
func templates() []*template {
	var all []*template
	for _, class := range []string{"ham", "spam"} {
		for _, group := range []string{"en", "de", "fr", "es", "other"} {
			text, err := templateFiles.ReadFile(class + "_" + group + ".txt")
			if err != nil {
				panic(err) // cannot happen, since the files are embedded
			}
			counts := map[string]int{}
			for _, part := range strings.Split("\n"+string(text), "\n%% ")[1:] {
				head, rest, _ := strings.Cut(part, "\n")
				t := &template{spam: class == "spam", language: group}
				t.kind, head, _ = strings.Cut(head, " ")
				if group == "other" {
					t.language = head
				}
				for line := range strings.Lines(rest) {
					if value, ok := strings.CutPrefix(line, "S: "); ok && t.subject == "" {
						t.subject = strings.TrimSpace(value)
					} else if value, ok := strings.CutPrefix(line, "A: "); ok {
						t.attachment = strings.TrimSpace(value)
					} else {
						t.body += line
					}
				}
				t.forMeasuring = counts[t.language]%3 == 2
				counts[t.language]++
				all = append(all, t)
			}
		}
	}
	return all
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// weightedChoice returns a random word from a list such as "word:percent word:percent …".
func weightedChoice(r *rand.Rand, list string) string {
	n := r.IntN(100)
	for part := range strings.FieldsSeq(list) {
		word, percent, _ := strings.Cut(part, ":")
		var p int
		if _, err := fmt.Sscan(percent, &p); err != nil {
			panic(err)
		}
		if n < p {
			return strings.TrimSuffix(word, "-")
		}
		n -= p
	}
	return ""
}

var (
	firstNames = strings.Fields(`Anna Tom Julia Peter Maria Lukas Sophie Paul Emma Jan Laura Pierre Carmen José Ingrid Marco Giulia Ewa Piotr
		Ahmed Mei Kenji Olga David Sarah Michael Linda Grace James Fatima Nils Hannah Élodie Jürgen Beatriz Rui Sanne Pieter Zofia`)
	lastNames = strings.Fields(`Miller Smith Schmidt Weber Martin Dubois García López Rossi Ferrari Kowalski Nowak Jansen Visser Silva Santos Brown
		Johnson Becker Hoffmann Leroy Moreau Torres Ruiz Conti Bianchi Okafor Williams Müller Schäfer Chen Tanaka Novak Larsen Clark Hughes`)
	companies = strings.Fields(`Northwind Fjordline Bluebird Hartmann Lindqvist Papyrus Orchard Meridian Tessera Quillfeather Baumwerk Maplesoft Rivage
		Solera Kestrel Lumen Harbor Pinecrest Velodrom Bookmarkt Granite Alpenland Seaside Wagonlit Parcelway Cityrail Musea Fotolab Gartenhaus`)
	banks    = strings.Fields(`Firstbank Unitrust Postkasse Paysure Globalpay Netbank Westbanc Eurocard Bankonline Safepay`)
	cities   = strings.Fields(`Hamburg Lyon Madrid Porto Torino Utrecht Kraków Boston Leeds Dublin Vienna Ghent Zürich Oslo Bristol Sevilla Lille`)
	listIDs  = strings.Fields(`netdev-users gtk-devel postfix-help debian-chat libfoo-dev kernel-janitors python-users astro-club editors`)
	repos    = strings.Fields(`acme/router tinydb/core webkit/forms libpq/driver oss/scheduler maps/tiles`)
	hosts    = strings.Fields(`db1 web03 backup mx2 build7 gateway`)
	freeMail = strings.Fields(`gmail.com outlook.com yahoo.com gmx.de web.de orange.fr hotmail.com icloud.com proton.me libero.it wp.pl`)
	oddWords = strings.Fields(`secure login verify promo best deal health offer win cash quick prime top click update service mega lucky smart trade
		bonus flash gold royal super vital fit max net online zone`)
	weekdays = map[string]string{"en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday", "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag",
		"fr": "lundi mardi mercredi jeudi vendredi samedi", "es": "lunes martes miércoles jueves viernes sábado"}
	months = map[string]string{"en": "January February March April May June July August September October November December",
		"de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
		"fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
		"es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
		"pt": "janeiro março maio junho setembro outubro", "it": "gennaio marzo maggio luglio ottobre dicembre",
		"nl": "januari maart mei juni oktober december", "pl": "styczeń marzec maj lipiec wrzesień grudzień"}
)

// fillTemplate replaces the choices and values in the text of a template. values keeps the values
// by name, so that a name has the same value throughout a message.
func fillTemplate(r *rand.Rand, text, language string, values map[string]string) string {
	var out strings.Builder
	for {
		at := strings.IndexAny(text, "[{")
		if at < 0 {
			return out.String() + text
		}
		out.WriteString(text[:at])
		closing := map[byte]string{'[': "]", '{': "}"}[text[at]]
		inner, rest, ok := strings.Cut(text[at+1:], closing)
		choice := text[at] == '[' && strings.Contains(inner, "|")
		switch {
		case !ok || text[at] == '[' && !choice:
			out.WriteByte(text[at])
			text = text[at+1:]
			continue
		case choice:
			out.WriteString(pick(r, strings.Split(inner, "|")...))
		default:
			value, known := values[inner]
			if !known {
				value = makeValue(r, inner, language)
				values[inner] = value
			}
			out.WriteString(value)
		}
		text = rest
	}
}

func wordsFor(table map[string]string, language string) []string {
	if text := table[language]; text != "" {
		return strings.Fields(text)
	}
	return strings.Fields(table["en"])
}

func makeValue(r *rand.Rand, name, language string) string {
	amount := func(most int) string { return fmt.Sprintf("%d.%02d", 1+r.IntN(most), r.IntN(100)) }
	switch name {
	case "first", "first2", "nick":
		return pick(r, firstNames...)
	case "last2":
		return pick(r, lastNames...)
	case "LAST":
		return strings.ToUpper(pick(r, lastNames...))
	case "name", "name2":
		return pick(r, firstNames...) + " " + pick(r, lastNames...)
	case "company":
		return pick(r, companies...)
	case "bank":
		return pick(r, banks...)
	case "city":
		return pick(r, cities...)
	case "weekday":
		return pick(r, wordsFor(weekdays, language)...)
	case "month":
		return pick(r, wordsFor(months, language)...)
	case "date":
		if chance(r, 40) {
			return fmt.Sprintf("%d.%d.2026", 1+r.IntN(28), 1+r.IntN(12))
		}
		return fmt.Sprintf("%d %s", 1+r.IntN(28), pick(r, wordsFor(months, language)...))
	case "hour":
		return fmt.Sprint(8 + r.IntN(12))
	case "digit":
		return fmt.Sprint(2 + r.IntN(5))
	case "four":
		return fmt.Sprint(1000 + r.IntN(9000))
	case "code":
		return fmt.Sprint(100000 + r.IntN(900000))
	case "seven":
		return fmt.Sprintf("%d-%d", 200+r.IntN(700), 1000+r.IntN(9000))
	case "number":
		return fmt.Sprint(10000 + r.IntN(90000000))
	case "tracking":
		return fmt.Sprintf("%s%d", pick(r, "JD", "RR", "LX", "00"), r.Int64N(1e10))
	case "hash":
		return fmt.Sprintf("%07x", r.IntN(1<<28))
	case "version", "version2":
		return fmt.Sprintf("%d.%d.%d", r.IntN(9), r.IntN(20), r.IntN(9))
	case "sum", "sum2", "total":
		return pick(r, "€", "$", "£") + amount(300)
	case "small":
		return pick(r, "$", "€") + amount(90)
	case "dollars":
		return fmt.Sprintf("$%d,%03d", 1+r.IntN(9), 10*r.IntN(100))
	case "millions":
		return fmt.Sprintf("%s%d,%d00,000.00", pick(r, "$", "USD ", "€", "£"), 1+r.IntN(20), r.IntN(10))
	case "btc":
		return fmt.Sprintf("%d.%04d", r.IntN(3), r.IntN(10000))
	case "wallet":
		return fmt.Sprintf("bc1q%x%x", r.Uint64(), r.Uint64())
	case "listname":
		return pick(r, listIDs...)
	case "listlink":
		return "https://lists." + strings.ToLower(pick(r, companies...)) + ".org/listinfo"
	case "repo":
		return pick(r, repos...)
	case "host":
		return pick(r, hosts...)
	case "domain":
		return strings.ToLower(pick(r, lastNames[:10]...)) + ".com"
	case "addr":
		return "info@" + strings.ToLower(pick(r, lastNames[:10]...)) + ".com"
	case "link", "link2":
		return fmt.Sprintf("https://%s%s.%s/%s/%d", pick(r, "www.", "", "click.", "mail."), strings.ToLower(pick(r, companies...)),
			weightedChoice(r, "com:50 org:12 de:14 fr:8 es:5 net:5 io:4 shop:1 xyz:1"), pick(r, "a", "view", "account", "news"), r.IntN(1e6))
	case "badlink", "badlink2":
		return fmt.Sprintf("http%s://%s/%s?%x", pick(r, "", "s"), badHost(r), pick(r, "go", "l", "index.php", "verify", "c"), r.Uint32())
	}
	panic("no value is known for {" + name + "}")
}

// badHost returns a random host name of the kind that junk mail links to.
func badHost(r *rand.Rand) string {
	switch n := r.IntN(100); {
	case n < 4:
		return fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(220), r.IntN(256), r.IntN(256), 1+r.IntN(250))
	case n < 10:
		return pick(r, "bit.ly", "tinyurl.com", "is.gd")
	}
	return fmt.Sprintf("%s%s%s.%s", pick(r, oddWords...), pick(r, "", "-"), pick(r, oddWords...),
		weightedChoice(r, "com:40 net:8 info:9 top:9 xyz:8 click:5 ru:5 shop:4 online:4 biz:4 site:4"))
}
