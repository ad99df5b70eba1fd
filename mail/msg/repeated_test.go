package msg

import (
	"bytes"
	"testing"
)

// TestLowestFieldCounts: of a field that stands twice readers are given the lower one, which
// signatures sign, whatever somebody has put above it.
func TestLowestFieldCounts(t *testing.T) {
	const signed = "From: Ann <ann@a.test>\r\nTo: bob@b.test\r\nCc: c@b.test\r\nReply-To: ann+r@a.test\r\nSender: s@a.test\r\nSubject: signed\r\n" +
		"Date: Tue, 03 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@a.test>\r\nIn-Reply-To: <0@a.test>\r\nReferences: <0@a.test>\r\n" +
		"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 7bit\r\nContent-Disposition: inline\r\n\r\nhello\r\n"
	const above = "From: Eve <eve@e.test>\r\nTo: eve@e.test\r\nCC: eve@e.test\r\nREPLY-TO: eve@e.test\r\nsender: eve@e.test\r\nsubject : forged\r\n" +
		"Date: Wed, 04 Nov 2026 10:00:00 +0000\r\nMessage-Id: <2@e.test>\r\nIn-Reply-To: <3@e.test>\r\nReferences: <3@e.test> <4@e.test>\r\n" +
		"Content-Type: text/html\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: attachment; filename=x\r\n"
	plain, forged := scanBytes(t, []byte(signed)), scanBytes(t, []byte(above+signed))
	for _, p := range []*Part{plain, forged} { // which differ in where they stand
		p.HeaderOffset, p.BodyOffset, p.End = 0, 0, 0
	}
	if got, want := forged.AppendBinary(nil), plain.AppendBinary(nil); !bytes.Equal(got, want) {
		t.Errorf("it is read as %+v of %+v\nwant %+v of %+v", forged, forged.Envelope, plain, plain.Envelope)
	}
}
