package servicetest

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/store"
)

// Arrive delivers a message from an unknown client at 192.0.2.1, as the SMTP server does, and
// returns the error of the delivery. to has addresses with commas between them.
func (b *Sandbox) Arrive(t testing.TB, from, to, message string) error {
	t.Helper()
	return b.ArriveFrom(t, netip.MustParseAddr("192.0.2.1"), from, to, message)
}

// ArriveFrom is like Arrive, with the address of the client.
func (b *Sandbox) ArriveFrom(t testing.TB, ip netip.Addr, from, to, message string) error {
	t.Helper()
	var list []inbound.Recipient
	for address := range strings.SplitSeq(to, ",") {
		r, err := b.Inbound.Accepts(t.Context(), inbound.RecipientQuery{From: from, To: address, RemoteIP: ip})
		if err != nil {
			return err
		}
		list = append(list, r)
	}
	spool, err := b.Inbound.Spool(strings.NewReader(strings.ReplaceAll(message, "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	_, err = b.Inbound.Receive(t.Context(), inbound.Incoming{
		Client: inbound.Client{IP: ip, Helo: "client.test", Extended: true}, From: from, Recipients: list, Body: spool,
	})
	return err
}

// DMARCFile and TLSFile are reports about the domain DOMAIN for 20 November 2026, as other servers
// send them.
const (
	DMARCFile = `<feedback><report_metadata><org_name>Far Mail</org_name><email>noreply@far.test</email><report_id>ID</report_id><date_range>` +
		`<begin>1795132800</begin><end>1795219199</end></date_range></report_metadata><policy_published><domain>DOMAIN</domain><adkim>r</adkim>` +
		`<aspf>s</aspf><p>reject</p><sp>none</sp><pct>100</pct></policy_published><record><row><source_ip>192.0.2.9</source_ip><count>7</count>` +
		`<policy_evaluated><disposition>none</disposition><dkim>pass</dkim><spf>fail</spf><reason><type>forwarded</type><comment>a list</comment>` +
		`</reason></policy_evaluated></row><identifiers><envelope_to>far.test</envelope_to><envelope_from>list.test</envelope_from>` +
		`<header_from>DOMAIN</header_from></identifiers><auth_results><dkim><domain>DOMAIN</domain><selector>s1</selector><result>pass</result></dkim>` +
		`<spf><domain>list.test</domain><scope>mfrom</scope><result>pass</result></spf></auth_results></record></feedback>`
	TLSFile = `{"organization-name":"Far Mail","date-range":{"start-datetime":"2026-11-20T00:00:00Z","end-datetime":"2026-11-20T23:59:59Z"},` +
		`"contact-info":"tls@far.test","report-id":"ID","policies":[{"policy":{"policy-type":"sts","policy-string":["version: STSv1"],"policy-domain":"DOMAIN",` +
		`"mx-host":["mx.DOMAIN"]},"summary":{"total-successful-session-count":50,"total-failure-session-count":2},"failure-details":[{"result-type":` +
		`"certificate-expired","sending-mta-ip":"192.0.2.9","receiving-mx-hostname":"mx.DOMAIN","receiving-ip":"192.0.2.25","failed-session-count":2,"failure-reason-code":"old"}]}]}`
)

// ReportMail returns a message with a report: file is DMARCFile or TLSFile.
func ReportMail(from, file, domain, id string) string {
	name, kind := "far.test!"+domain+"!1795132800!1795219199.xml", "text/xml"
	if file == TLSFile {
		name, kind = strings.TrimSuffix(name, ".xml")+".json", "application/tlsrpt+json"
	}
	file = strings.NewReplacer("DOMAIN", domain, "ID", id).Replace(file)
	return "From: " + from + "\nSubject: Report Domain: " + domain + "\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n" +
		"--b\n\nA report.\n--b\nContent-Type: " + kind + "\nContent-Disposition: attachment; filename=\"" + name + "\"\n\n" + file + "\n--b--\n"
}

// ReportsRead waits until all report messages have been read.
func (b *Sandbox) ReportsRead(t testing.TB) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		waiting := false
		err := b.Core.Store.View(func(tx *store.Tx) error {
			for range store.ReportMails.All(tx) {
				waiting = true
				break
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !waiting {
			return
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("reports are never read")
		}
	}
}
