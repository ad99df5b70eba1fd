package feedback

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// An SESTopic creates an SNS topic to which Amazon SES reports bounces and complaints, by the APIs
// of SNS and SES. The credentials need the permissions sns:CreateTopic, sns:SetTopicAttributes,
// sns:Subscribe, ses:ListIdentities and ses:SetIdentityNotificationTopic.
type SESTopic struct {
	Region   string
	KeyID    string
	Secret   string
	Name     string // name of the topic: letters, digits, "-" and "_"
	Endpoint string // https URL to which the topic's messages are posted
	SNS, SES string // URLs (https://host) in place of Amazon's, unless ""
	HTTP     *http.Client
	Now      func() time.Time
}

// Make creates the topic if it does not exist. It permits SES to publish to the topic, for the same
// AWS account only. It returns the ARN of the topic.
func (t *SESTopic) Make(ctx context.Context) (arn string, err error) {
	var made struct {
		ARN string `xml:"CreateTopicResult>TopicArn"`
	}
	if err := t.call(ctx, "sns", url.Values{"Action": {"CreateTopic"}, "Version": {snsVersion}, "Name": {t.Name}}, &made); err != nil {
		return "", err
	}
	parts := strings.Split(made.ARN, ":") // arn:aws:sns:region:account:name
	if len(parts) != 6 || parts[5] != t.Name || strings.ContainsAny(made.ARN, "\"\\") {
		return "", fmt.Errorf("CreateTopic: %.200q is not the ARN of a topic", made.ARN)
	}
	policy := fmt.Sprintf(`{"Version":"2012-10-17","Statement":[`+
		`{"Sid":"owner","Effect":"Allow","Principal":{"AWS":"*"},"Action":["SNS:GetTopicAttributes","SNS:SetTopicAttributes","SNS:DeleteTopic","SNS:Subscribe","SNS:Publish"],"Resource":%q,"Condition":{"StringEquals":{"AWS:SourceOwner":%q}}},`+
		`{"Sid":"ses","Effect":"Allow","Principal":{"Service":"ses.amazonaws.com"},"Action":"SNS:Publish","Resource":%q,"Condition":{"StringEquals":{"AWS:SourceAccount":%q}}}]}`,
		made.ARN, parts[4], made.ARN, parts[4])
	if err := t.call(ctx, "sns", url.Values{
		"Action": {"SetTopicAttributes"}, "Version": {snsVersion}, "TopicArn": {made.ARN}, "AttributeName": {"Policy"}, "AttributeValue": {policy},
	}, nil); err != nil {
		return "", err
	}
	return made.ARN, nil
}

// Subscribe subscribes the endpoint to the topic. It also configures the SES identities that are
// among domains to report to the topic. The server at the endpoint must confirm the subscription.
func (t *SESTopic) Subscribe(ctx context.Context, arn string, domains []string) error {
	if err := t.call(ctx, "sns", url.Values{
		"Action": {"Subscribe"}, "Version": {snsVersion}, "TopicArn": {arn}, "Protocol": {"https"}, "Endpoint": {t.Endpoint},
	}, nil); err != nil {
		return err
	}
	for next, pages := "", 0; pages < maxPages; pages++ {
		var list struct {
			Names []string `xml:"ListIdentitiesResult>Identities>member"`
			Next  string   `xml:"ListIdentitiesResult>NextToken"`
		}
		q := url.Values{"Action": {"ListIdentities"}, "Version": {sesVersion}, "IdentityType": {"Domain"}, "MaxItems": {"1000"}}
		if next != "" {
			q.Set("NextToken", next)
		}
		if err := t.call(ctx, "ses", q, &list); err != nil {
			return err
		}
		for _, name := range list.Names {
			if !slices.Contains(domains, strings.ToLower(name)) {
				continue
			}
			for _, kind := range []string{"Bounce", "Complaint"} {
				if err := t.call(ctx, "ses", url.Values{
					"Action": {"SetIdentityNotificationTopic"}, "Version": {sesVersion}, "Identity": {name}, "NotificationType": {kind}, "SnsTopic": {arn},
				}, nil); err != nil {
					return err
				}
			}
		}
		next = list.Next
		if next == "" {
			break
		}
	}
	return nil
}

const (
	snsVersion = "2010-03-31"
	sesVersion = "2010-12-01"
	maxPages   = 100
	maxAnswer  = 1 << 20
)

// call calls an AWS API with a signed form. It decodes the XML response into out, unless out is
// nil.
func (t *SESTopic) call(ctx context.Context, service string, q url.Values, out any) error {
	host := cmp.Or(t.SNS, "https://sns."+t.Region+".amazonaws.com")
	if service == "ses" {
		host = cmp.Or(t.SES, "https://email."+t.Region+".amazonaws.com")
	}
	body := q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, host+"/", strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", q.Get("Action"), err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	sum := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(ctx, aws.Credentials{AccessKeyID: t.KeyID, SecretAccessKey: t.Secret}, req, hex.EncodeToString(sum[:]), service, t.Region, t.Now()); err != nil {
		return fmt.Errorf("%s: sign: %w", q.Get("Action"), err)
	}
	resp, err := t.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", q.Get("Action"), err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", q.Get("Action"), err)
	}
	if resp.StatusCode != http.StatusOK {
		var told struct {
			Code    string `xml:"Error>Code"`
			Message string `xml:"Error>Message"`
		}
		_ = xml.Unmarshal(answer, &told) // if it is not XML, only the status is known
		return fmt.Errorf("%s: %s answered %d %s: %.300s", q.Get("Action"), service, resp.StatusCode, told.Code, told.Message)
	}
	if out == nil {
		return nil
	}
	if err := xml.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s: read answer: %w", q.Get("Action"), err)
	}
	return nil
}
