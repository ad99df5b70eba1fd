package msg

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/date"
)

// checkView compares what a View reads with what DecodePart reads.
func checkView(t testing.TB, tree []byte) {
	t.Helper()
	want, wantErr := DecodePart(tree)
	v := new(View)
	for range 2 { // the second time with what the first has left
		parts, err := v.Parts(tree)
		if err != wantErr {
			t.Fatalf("View says %v, DecodePart %v", err, wantErr)
		}
		if err != nil {
			return
		}
		got, rest := partOf(parts)
		if len(rest) > 0 || !reflect.DeepEqual(got, want) {
			t.Fatalf("View reads\n%#v, %d parts too many; DecodePart\n%#v", got, len(rest), want)
		}
		e, err := v.Envelope(tree)
		if err != nil || !reflect.DeepEqual(envelopeOf(e), want.Envelope) {
			t.Fatalf("View reads the envelope\n%#v, %v; DecodePart\n%#v", e, err, want.Envelope)
		}
		checkAttachmentsView(t, tree, v)
		v.Clear()
	}
}

func checkAttachmentsView(t testing.TB, tree []byte, v *View) {
	t.Helper()
	parts, err := v.Parts(tree)
	if err != nil {
		t.Fatal(err)
	}
	root, _ := partOf(parts)
	want := Attachments(root)
	for i := range want {
		want[i].Part = nil
	}
	first := Attachment{Index: -1}
	if got := AppendAttachments([]Attachment{first}, parts); got[0] != first || !slices.Equal(got[1:], want) {
		t.Fatalf("View finds the attachments\n%#v, DecodePart\n%#v", got[1:], want)
	}
}

// partOf makes a Part of the first of the views and its children.
func partOf(views []PartView) (*Part, []PartView) {
	v, rest := &views[0], views[1:]
	p := &Part{
		Type: string(v.Type), Subtype: string(v.Subtype), ID: string(v.ID), Description: string(v.Description),
		Encoding: string(v.Encoding), Disposition: string(v.Disposition), Location: string(v.Location), MD5: string(v.MD5),
		Params: paramsOf(v.Params), DispositionParams: paramsOf(v.DispositionParams), Language: textsOf(v.Language),
		HeaderOffset: v.HeaderOffset, BodyOffset: v.BodyOffset, End: v.End, Lines: v.Lines, DecodedSize: v.DecodedSize,
	}
	if v.Envelope != nil {
		p.Envelope = envelopeOf(v.Envelope)
	}
	for range v.Children {
		var child *Part
		child, rest = partOf(rest)
		p.Children = append(p.Children, child)
	}
	return p, rest
}

func paramsOf(list []ParamView) map[string]string {
	if len(list) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, p := range list {
		out[string(p.Name)] = string(p.Value)
	}
	return out
}

func textsOf(list [][]byte) (out []string) {
	for _, text := range list {
		out = append(out, string(text))
	}
	return out
}

func addressesOf(list []AddressView) (out []Address) {
	for _, a := range list {
		one := Address{string(a.Name), string(a.Mailbox), string(a.Host)}
		if string(a.AppendEmail(nil)) != one.Email() || a.IsGroupMarker() != one.IsGroupMarker() {
			panic("AppendEmail and Email differ")
		}
		if string(a.AppendText(nil)) != one.String() {
			panic("AppendText and String differ")
		}
		out = append(out, one)
	}
	return out
}

func envelopeOf(v *EnvelopeView) *Envelope {
	e := &Envelope{
		DateText: string(v.DateText), Subject: string(v.Subject), MessageID: string(v.MessageID),
		From: addressesOf(v.From), Sender: addressesOf(v.Sender), ReplyTo: addressesOf(v.ReplyTo),
		To: addressesOf(v.To), Cc: addressesOf(v.Cc), Bcc: addressesOf(v.Bcc),
		InReplyTo: textsOf(v.InReplyTo), References: textsOf(v.References),
	}
	e.EmptySubject = v.EmptySubject
	if v.Date.Known {
		e.Date = time.Unix(v.Date.Unix, 0).In(date.Location(v.Date.Offset))
	}
	return e
}
