package imapd

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// variable is a name in the lines of a dialogue. The first answer that has it says which number it
// stands for; {tag} stands for the tag of the command.
var (
	variable       = regexp.MustCompile(`\{([a-z]+)\}`)
	quotedVariable = regexp.MustCompile(`\\\{([a-z]+)\\\}`)
)

// TestDialogues plays the files in testdata/dialogues, each with a mailbox of its own. Of the lines
// of a file, "message FOLDER" puts the lines up to "." into a folder, "C: …" is a command of the
// first client and "2: …" one of the second. Behind a command, "S: …" is a line that the answer
// has; a status need not be whole. "S! …" begins no line of it, or, in quotes, is nowhere in it.
// Quoted lines are Go strings.
func TestDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/dialogues/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d := &dialogue{t: t, host: serve(t, nil), clients: map[string]*talker{}, values: map[string]string{}}
			lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
			for d.at = 0; d.at < len(lines); d.at++ {
				d.play(lines)
			}
		})
	}
}

type dialogue struct {
	t       *testing.T
	host    *host
	at      int
	clients map[string]*talker
	values  map[string]string
	answer  []string
}

func (d *dialogue) play(lines []string) {
	d.t.Helper()
	line := lines[d.at]
	folder, isMessage := strings.CutPrefix(line, "message ")
	mark, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "" || line[0] == '#':
	case isMessage:
		var message strings.Builder
		for d.at++; lines[d.at] != "."; d.at++ {
			if text := plain(lines[d.at]); text == lines[d.at] {
				message.WriteString(text + "\n")
			} else {
				message.WriteString(text)
			}
		}
		d.host.put(d.t, folder, message.String(), 0)
	case mark == "C:" || mark == "2:":
		if d.clients[mark] == nil {
			d.clients[mark] = d.host.login(d.t)
		}
		c := d.clients[mark]
		d.answer = c.do("%s", strings.ReplaceAll(d.expand(rest), `\r\n`, "\r\n"))
		d.values["tag"] = "a" + strconv.Itoa(c.n)
	case mark == "S:":
		d.want(rest)
	case mark == "S!":
		if text := plain(rest); text != rest && strings.Contains(strings.Join(d.answer, "\n"), text) {
			d.t.Errorf("line %d: %s is in %q", d.at+1, rest, d.answer)
		}
		for _, l := range d.answer {
			if strings.HasPrefix(l, rest) {
				d.t.Errorf("line %d: %q is not to come", d.at+1, l)
			}
		}
	default:
		d.t.Fatalf("line %d: what is %q?", d.at+1, line)
	}
}

// plain is a line without its quotes.
func plain(line string) string {
	if text, err := strconv.Unquote(line); err == nil {
		return text
	}
	return line
}

func (d *dialogue) expand(text string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := d.values[name[1:len(name)-1]]; ok {
			return value
		}
		return name
	})
}

func (d *dialogue) want(line string) {
	d.t.Helper()
	text := d.expand(plain(line))
	isStatus := strings.HasPrefix(text, "OK") || strings.HasPrefix(text, "NO") || strings.HasPrefix(text, "BAD")
	pattern := "^" + quotedVariable.ReplaceAllString(regexp.QuoteMeta(strings.ToValidUTF8(text, "?")), "(?P<$1>[0-9]+)")
	if !isStatus {
		pattern += "$"
	}
	want := regexp.MustCompile(pattern)
	for i, l := range d.answer {
		if l == text {
			return
		}
		found := want.FindStringSubmatch(l)
		if found == nil || isStatus != (i == len(d.answer)-1) {
			continue
		}
		for j, name := range want.SubexpNames() {
			if name != "" {
				d.values[name] = found[j]
			}
		}
		return
	}
	d.t.Errorf("line %d: no %q in\n%s", d.at+1, text, strings.Join(d.answer, "\n"))
}
