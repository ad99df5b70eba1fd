package mailboxes

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/service/core"
)

// An ExportFormat is a form of file that create_export can make.
type ExportFormat struct {
	ID      string   `json:"id" words:"ours"`
	Name    string   `json:"name" words:"ours"`
	Columns []string `json:"columns" words:"ours"`
}

// ListExportFormats lists the formats that create_export knows.
func (s *Service) ListExportFormats(_ context.Context, _ core.Actor) (*core.List[ExportFormat], error) {
	var out []ExportFormat
	for _, f := range exportFormats {
		out = append(out, ExportFormat{f.id, f.name, f.columns})
	}
	return core.ListOf(out), nil
}

// Credentials are what a mail client needs for one mailbox. Username and password of SMTP and IMAP
// differ only for mailboxes that live elsewhere; Password is the one that the mailbox was made
// with.
type Credentials struct {
	UserID       string  `json:"user_id" words:"ours"`
	Email        string  `json:"email" words:"ours"`
	Username     string  `json:"username" words:"ours"`
	Domain       string  `json:"domain" words:"ours"`
	DomainID     string  `json:"domain_id" words:"ours"`
	Name         string  `json:"name" words:"ours"`
	Status       string  `json:"status" enum:"pending|active|suspended|error"`
	Type         string  `json:"type" enum:"hosted|external"`
	Password     string  `json:"password" words:"ours"`
	SMTPHost     string  `json:"smtp_host" words:"ours"`
	SMTPPort     int     `json:"smtp_port"`
	SMTPSecurity string  `json:"smtp_security" enum:"tls|starttls|none"`
	SMTPUsername string  `json:"smtp_username" words:"ours"`
	SMTPPassword string  `json:"smtp_password" words:"ours"`
	IMAPHost     string  `json:"imap_host" words:"ours"`
	IMAPPort     int     `json:"imap_port"`
	IMAPSecurity string  `json:"imap_security" enum:"tls|starttls|none"`
	IMAPUsername string  `json:"imap_username" words:"ours"`
	IMAPPassword string  `json:"imap_password" words:"ours"`
	DailyLimit   *int    `json:"daily_send_limit"`
	Footer       *string `json:"footer" words:"ours"`
}

// An exportFormat is one way to write credentials: a table, or without row JSON.
type exportFormat struct {
	id, name string
	columns  []string
	row      func(c *Credentials) []string
}

func formatOf(id string) *exportFormat {
	i := slices.IndexFunc(exportFormats, func(f exportFormat) bool { return f.id == cmp.Or(id, "default") })
	if i < 0 {
		return nil
	}
	return &exportFormats[i]
}

// What other tools shall do with a mailbox beyond its log-in, such as warming it up, is not ours to
// say: those columns are empty, and no warm-up is switched on.
var exportFormats = []exportFormat{
	{
		id: "default", name: "Mailstead CSV",
		columns: columns("domain,from_email,from_name,user_name,password,smtp_host,smtp_port,imap_host,imap_port,imap_username,imap_password,footer"),
		row: func(c *Credentials) []string {
			return []string{
				c.Domain, c.Email, plainCell(c.Name), c.SMTPUsername, c.SMTPPassword, c.SMTPHost, portCell(c.SMTPPort),
				c.IMAPHost, portCell(c.IMAPPort), c.IMAPUsername, c.IMAPPassword, c.footerCell(),
			}
		},
	},
	{
		id: "smartlead", name: "Smartlead CSV",
		columns: columns("from_name,from_email,user_name,password,smtp_host,smtp_port,imap_host,imap_port,max_email_per_day,custom_tracking_url,warmup_enabled,total_warmup_per_day,daily_rampup,reply_rate_percentage,bcc,signature,different_reply_to_address,imap_user_name,imap_password"),
		row: func(c *Credentials) []string {
			return []string{
				plainCell(c.Name), c.Email, c.SMTPUsername, c.SMTPPassword, c.SMTPHost, portCell(c.SMTPPort), c.IMAPHost, portCell(c.IMAPPort),
				c.limitCell(), "", "false", "", "", "", "", c.footerCell(), "", c.IMAPUsername, c.IMAPPassword,
			}
		},
	},
	{
		id: "instantly", name: "Instantly CSV",
		columns: columns("Email,First Name,Last Name,IMAP Username,IMAP Password,IMAP Host,IMAP Port,SMTP Username,SMTP Password,SMTP Host,SMTP Port,Daily Limit,Warmup Enabled,Warmup Limit,Warmup Increment"),
		row: func(c *Credentials) []string {
			first, last := splitName(c.Name)
			return []string{
				c.Email, plainCell(first), plainCell(last), c.IMAPUsername, c.IMAPPassword, c.IMAPHost, portCell(c.IMAPPort),
				c.SMTPUsername, c.SMTPPassword, c.SMTPHost, portCell(c.SMTPPort), c.limitCell(), "false", "", "",
			}
		},
	},
	{
		id: "emailbison", name: "EmailBison CSV",
		columns: columns("Name,Email,Password,IMAP Server,IMAP Port,SMTP Server,SMTP Port,Daily Limit,SMTP Secure,IMAP Secure"),
		row: func(c *Credentials) []string {
			return []string{
				plainCell(c.Name), c.Email, c.Password, c.IMAPHost, portCell(c.IMAPPort), c.SMTPHost, portCell(c.SMTPPort),
				c.limitCell(), strconv.FormatBool(c.SMTPSecurity == "tls"), strconv.FormatBool(c.IMAPSecurity == "tls"),
			}
		},
	},
	{
		id: "json", name: "JSON",
		columns: columns("user_id,email,username,domain,domain_id,name,status,type,password,smtp_host,smtp_port,smtp_security,smtp_username,smtp_password,imap_host,imap_port,imap_security,imap_username,imap_password,daily_send_limit,footer"),
	},
}

func columns(names string) []string { return strings.Split(names, ",") }

// plainCell keeps a text from being taken for a formula by a spreadsheet. Credentials are not
// changed, since they would no longer be true.
func plainCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}

func portCell(port int) string {
	if port == 0 {
		return ""
	}
	return strconv.Itoa(port)
}

func (c *Credentials) footerCell() string {
	if c.Footer == nil {
		return ""
	}
	return plainCell(*c.Footer)
}

func (c *Credentials) limitCell() string {
	if c.DailyLimit == nil {
		return ""
	}
	return strconv.Itoa(*c.DailyLimit)
}

// splitName takes the last word for the last name.
func splitName(name string) (first, last string) {
	i := strings.LastIndexByte(name, ' ')
	if i < 0 {
		return name, ""
	}
	return strings.TrimSpace(name[:i]), name[i+1:]
}
