package feedback

import (
	"strings"
	"time"
)

// A sesNotice is what SES puts into an SNS message: as a notice of an identity (notificationType),
// or as an event of a configuration set (eventType).
type sesNotice struct {
	NotificationType string `json:"notificationType"`
	EventType        string `json:"eventType"`
	Mail             struct {
		MessageID     string `json:"messageId"`
		Source        string `json:"source"`
		CommonHeaders struct {
			MessageID string `json:"messageId"`
			Subject   string `json:"subject"`
		} `json:"commonHeaders"`
	} `json:"mail"`
	Bounce struct {
		Type         string `json:"bounceType"`
		Subtype      string `json:"bounceSubType"`
		ReportingMTA string `json:"reportingMTA"`
		RemoteMTA    string `json:"remoteMtaIp"`
		Recipients   []struct {
			Address    string `json:"emailAddress"`
			Action     string `json:"action"`
			Status     string `json:"status"`
			Diagnostic string `json:"diagnosticCode"`
		} `json:"bouncedRecipients"`
	} `json:"bounce"`
	Complaint struct {
		FeedbackType string `json:"complaintFeedbackType"`
		UserAgent    string `json:"userAgent"`
		Arrived      string `json:"arrivalDate"`
		Recipients   []struct {
			Address string `json:"emailAddress"`
		} `json:"complainedRecipients"`
	} `json:"complaint"`
}

// sesNotices reads one. Deliveries and what is not about mail, such as the greeting of a new topic,
// are none.
func sesNotices(text []byte) ([]Notice, error) {
	if !strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		return nil, nil // "Successfully validated SNS topic for Amazon SES event publishing."
	}
	var n sesNotice
	if err := decode(text, &n); err != nil {
		return nil, err
	}
	base := Notice{
		ProviderID: clip(n.Mail.MessageID, maxID), MessageID: messageID(n.Mail.CommonHeaders.MessageID),
		Sender: address(n.Mail.Source), Subject: n.Mail.CommonHeaders.Subject,
	}
	kind := n.NotificationType
	if kind == "" {
		kind = n.EventType
	}
	switch kind {
	case "Bounce":
		return n.bounces(base), nil
	case "Complaint":
		return n.complaints(base), nil
	}
	return nil, nil
}

func (n *sesNotice) bounces(base Notice) []Notice {
	var out []Notice
	for _, r := range n.Bounce.Recipients[:min(len(n.Bounce.Recipients), maxNotices)] {
		one := base
		one.Kind, one.Recipient = Bounced, address(r.Address)
		one.Status, one.Diagnostic = clip(r.Status, 16), clip(untyped(r.Diagnostic), maxText)
		one.RemoteMTA = clip(untyped(n.Bounce.ReportingMTA), maxAddress)
		switch n.Bounce.Type {
		case "Permanent":
			one.Type = Hard
		case "Transient":
			one.Type = Soft
		default:
			one.Type = Undetermined
		}
		switch n.Bounce.Subtype {
		case "NoEmail":
			one.Subtype, one.Suppress = "no_such_mailbox", true
		case "Suppressed", "OnAccountSuppressionList":
			one.Subtype, one.Suppress = "suppressed", true
		case "MailboxFull":
			one.Subtype = "mailbox_full"
		case "MessageTooLarge":
			one.Subtype = "message_too_large"
		case "ContentRejected", "AttachmentRejected":
			one.Subtype = "content"
		case "General":
			// SES says so of what it will not try again, whatever the other server meant.
			one.Suppress = one.Type == Hard && (one.Status == "" || one.Status == "5.0.0")
		}
		out = append(out, one)
	}
	return out
}

func (n *sesNotice) complaints(base Notice) []Notice {
	var out []Notice
	for _, r := range n.Complaint.Recipients[:min(len(n.Complaint.Recipients), maxNotices)] {
		one := base
		one.Kind, one.Recipient = Complained, address(r.Address)
		one.FeedbackType, one.UserAgent = clip(n.Complaint.FeedbackType, 64), clip(n.Complaint.UserAgent, maxText)
		one.ArrivedAt, _ = time.Parse(time.RFC3339, n.Complaint.Arrived) // zero where it cannot be read
		out = append(out, one)
	}
	return out
}

// untyped takes the type off "smtp; 550 no" and "dns; host".
func untyped(s string) string {
	kind, value, ok := strings.Cut(s, ";")
	if !ok || strings.ContainsAny(strings.TrimSpace(kind), " .:") {
		return s
	}
	return strings.TrimSpace(value)
}
