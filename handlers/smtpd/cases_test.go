package smtpd_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/smtpd"
)

// TestCodesOfCases sends the commands of each row; the last one must get the expected reply. AUTH
// is sent to a submission port, the commands of a message to an MX.
func TestCodesOfCases(t *testing.T) {
	text, err := os.ReadFile("testdata/cases/40-smtp-codes.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Send   []string
		Expect string
	}
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) != 5 {
		t.Fatal(len(rows), err)
	}
	h := open(t, nil)
	for _, row := range rows {
		mode := smtpd.MX
		if strings.HasPrefix(row.Send[0], "AUTH") {
			mode = smtpd.Submission
		}
		c := connect(t, h.addr[mode])
		c.want("220")
		c.ask("EHLO client.test", "250")
		last := ""
		for i, command := range row.Send {
			switch command {
			case "MAIL…":
				command = "MAIL FROM:<pat@sender.test>"
			case "RCPT…":
				command = "RCPT TO:<ana@example.test>"
			}
			command += "\r\n"
			if size, ok := strings.CutPrefix(command, "BDAT 3"); ok {
				command = "BDAT 3" + size + "abc"
			}
			c.send(command)
			last, err = c.reply()
			if err != nil {
				t.Fatalf("%q: %v", row.Send, err)
			}
			if i < len(row.Send)-1 && !strings.HasPrefix(last, "250") {
				t.Fatalf("%q: %s gets %q", row.Send, command, last)
			}
		}
		want, _, _ := strings.Cut(row.Expect, " (")
		want, _, _ = strings.Cut(want, ",")
		if !strings.HasPrefix(last, want+" ") && !strings.HasPrefix(last, want+"-") {
			t.Errorf("%q gets %q, want %s", row.Send, last, row.Expect)
		}
	}
}
