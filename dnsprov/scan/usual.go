package scan

import (
	"strings"

	"github.com/miekg/dns"
)

// Types that are asked for.
var (
	domainTypes = []uint16{
		dns.TypeA, dns.TypeAAAA, dns.TypeCNAME, dns.TypeMX, dns.TypeNS, dns.TypeTXT, dns.TypeCAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeSRV,
		dns.TypeTLSA, dns.TypeNAPTR, dns.TypeSSHFP, dns.TypeURI, dns.TypeLOC, dns.TypeHINFO, dns.TypeRP, dns.TypeSPF, dns.TypeDNAME,
	}
	hostTypes     = []uint16{dns.TypeA, dns.TypeAAAA}
	moreHostTypes = []uint16{dns.TypeNS, dns.TypeMX, dns.TypeTXT, dns.TypeCAA, dns.TypeHTTPS, dns.TypeSSHFP} // of hosts that exist
	textTypes     = []uint16{dns.TypeTXT}
	srvTypes      = []uint16{dns.TypeSRV}
	tlsaTypes     = []uint16{dns.TypeTLSA}
	bindingTypes  = []uint16{dns.TypeHTTPS, dns.TypeSVCB, dns.TypeURI}
)

// commonest is how many names of a group are asked for even if the servers say that the name above
// them does not exist: some servers say so of each name that has no records itself.
const commonest = 20

// usualNames are names that domains often have. Those that follow the same label begin with the
// most common ones. A CNAME shows at each type. docs/scan.md lists them.
var usualNames = []struct {
	types, more []uint16
	below       string // a label that follows each name
	names       string
}{
	// websites
	{hostTypes, moreHostTypes, "", `www www1 www2 www3 web web1 web2 m mobile wap amp home site sites start welcome landing go link links
		url click r t track tracking blog blogs news press magazine wiki forum forums community shop store shops checkout cart pay payment payments
		billing invoice order orders booking bookings book tickets ticket events event jobs job careers career about info contact help helpdesk
		support faq kb docs doc documentation learn academy training school courses status search maps map photos gallery images image img pics
		video videos media tv radio live stream streaming podcast music download downloads files file upload uploads cdn cdn1 cdn2 static assets
		content cache css js fonts api api1 api2 api-dev api-staging v1 v2 graphql rest ws wss socket app apps app1 app2 my me account accounts
		profile portal login signin signup register auth sso id idp oauth secure ssl admin administrator backend dashboard panel console manage
		cms wordpress wp old new next legacy archive en de fr es it nl pl pt ru us uk eu cn jp lists newsletter`},
	// mail and groupware
	{hostTypes, moreHostTypes, "", `mail mail1 mail2 mail3 email webmail webmail2 smtp smtp1 smtp2 smtps imap imap4 imaps pop pop3 pops mx mx0 mx1 mx2 mx3
		mx01 mx02 mx10 mxa mxb relay outbound inbound mailhost mailserver mailer mta mta1 mta2 send sender bounce bounces em em1 em2 e mg
		mailgun sendgrid ses mailing list exchange owa outlook autodiscover autoconfig mta-sts calendar cal contacts caldav carddav dav webdav drive
		groupware zimbra roundcube spam antispam filter postmaster mailin mailout`},
	// hosts, networks and administration
	{hostTypes, moreHostTypes, "", `ns ns0 ns1 ns2 ns3 ns4 dns dns1 dns2 ftp ftp1 ftp2 sftp ssh vpn vpn1 vpn2 remote rdp rds citrix gateway gw router
		firewall fw proxy host host1 host2 server server1 server2 srv srv1 srv2 node node1 vps web01 web02 lb lb1 cluster k8s kubernetes docker
		registry git gitlab github svn hg ci jenkins build deploy dev dev1 dev2 develop development test test1 test2 testing qa uat stage staging
		preview demo sandbox beta alpha prod production preprod lab labs db db1 db2 database mysql sql postgres mongo redis elastic kibana grafana
		prometheus metrics monitor monitoring nagios zabbix stats statistics analytics piwik matomo logs log sentry backup backup1 backups storage
		nas cloud nextcloud owncloud s3 minio intranet extranet internal corp office crm erp hr sap jira confluence redmine chat irc jabber xmpp
		matrix element mattermost rocket meet meeting conference jitsi zoom voip sip pbx phone sipdir lyncdiscover webconf av dialin teams skype
		enterpriseregistration enterpriseenrollment msoid cpanel whm plesk webdisk cpcontacts cpcalendars directadmin phpmyadmin pma ntp time ldap
		radius kerberos dc dc1 ad print printer cam camera iot mc minecraft game games play ts teamspeak server01 localhost`},
	// verification and policies
	{textTypes, nil, "", `_dmarc _adsp._domainkey _mta-sts _smtp._tls _spf spf spf1 spf2 _spf1 _spf2 default._bimi _acme-challenge
		_acme-challenge.www _acme-challenge.mail _dnsauth _domainconnect _vercel _github-pages-challenge _netblocks _cf-custom-hostname _validation-contactemail
		_psl _dnslink _atproto _token._dnswl google-site-verification asuid asuid.www _visual-studio-marketplace _amazonses _report._dmarc`},
	// DKIM keys: Google, Microsoft, Mailchimp and Mandrill, SendGrid, Amazon, Postmark, Mailgun,
	// Mailjet, Brevo, Zoho, Fastmail, Proton, iCloud, Yandex, HubSpot, Salesforce, Klaviyo,
	// Zendesk, Mimecast, Proofpoint and others, and what hosters and programs use
	{textTypes, nil, "_domainkey", `google selector1 selector2 default dkim mail x s1 s2 k1 k2 k3 mandrill pm zoho fm1 protonmail sig1 smtp
		mailjet google2048 google2 20161025 20210112 20230601 selector3 selector mailchimp s3 m1 m2 smtpapi sendgrid em amazonses ses pm2
		postmark mg mailo mailgun mta pic krs mj mail1 mail2 brevo sib sendinblue zmail zoho1 fm2 fm3 fm4 mesmtp protonmail2 protonmail3 icloud
		yandex mailru hs1 hs2 hubspot sf sf1 sf2 salesforce pardot 200608 exacttarget et kl kl2 klaviyo zendesk1 zendesk2 mimecast proofpoint
		ppk1 ppk2 everlytickey1 everlytickey2 mxvault cm ctct1 ctct2 constantcontact ac activecampaign dk dkim1 dkim2 dkim3 email key key1 key2
		domk private public test server a b y z sparkpost scph0920 turbo-smtp elasticemail api resend loops freshdesk fd fd2 intercom front
		helpscout strong1 strong2 hse1 hse2 cf2024-1 titan1 titan2 migadu ovh1 ovh2 mailbox mbo0001 mbo0002 mbo0003 mbo0004 hetzner ionos
		s1-ionos s2-ionos s42582890 s1024 s2048 strato-dkim-0002 strato-dkim-0003 gandi gm1 gm2 gm3 mxroute rsa ed25519 stalwart mox 2023 2024
		2025 2026 202401 202501 202601 brevo1 brevo2 mailerlite ml litesrv aweber_key_a aweber_key_b aweber_key_c getresponse sailthru sm
		smtp2go s-smtp2go mailtrap1 mailtrap2 rwmt1 rwmt2`},
	// services by SRV records
	{srvTypes, nil, "_tcp", `_autodiscover _sipfederationtls _sip _sips _imaps _imap _submission _submissions _pop3s _pop3 _caldavs _caldav
		_carddavs _carddav _xmpp-client _xmpp-server _minecraft _matrix _matrix-fed _ldap _sipinternaltls _xmpps-client _xmpps-server _jabber
		_xmppconnect _smtp _ldaps _kerberos _kpasswd _gc _kerberos-master _matrix-identity _h323cs _stun _turn _turns _http _https _ftp _ssh
		_mongodb _ts3 _tsdns _vlmcs _jmap _sieve _nntp _xmpp _rdp _mysql _postgresql _radius _afpovertcp _etcd-server _etcd-client _factorio
		_mumble`},
	{srvTypes, nil, "_udp", `_sip _stun _turn _h323ls _kerberos _kpasswd _ntp _ts3 _minecraft _l2tp _mumble _xmpp _radius _afs3-vlserver`},
	{srvTypes, nil, "_tls", `_sip`},
	// keys of TLS servers
	{tlsaTypes, nil, "", `_25._tcp _443._tcp _465._tcp _587._tcp _993._tcp _25._tcp.mail _443._tcp.www _25._tcp.mx`},
	// bindings of services
	{bindingTypes, nil, "", `_dns _dns._udp _8443._https _matrix._https`},
}

// belowMail are names below a host that has mail of its own.
const belowMail = `_dmarc _domainkey default._domainkey dkim._domainkey google._domainkey k1._domainkey k2._domainkey k3._domainkey
	krs._domainkey mail._domainkey mailo._domainkey mg._domainkey mta._domainkey mx._domainkey pic._domainkey resend._domainkey
	s1._domainkey s2._domainkey selector1._domainkey selector2._domainkey smtp._domainkey`

// usual returns a domain and its usual names as targets.
func usual(domain string) []target {
	out := []target{{name: domain, types: domainTypes}}
	for _, group := range usualNames {
		names := strings.Fields(group.names)
		if len(names) > commonest && group.below != "" {
			out = append(out, target{name: group.below + "." + domain, types: group.types, sure: true})
		}
		for i, name := range names {
			if group.below != "" {
				name += "." + group.below
			}
			out = append(out, target{name: name + "." + domain, types: group.types, more: group.more, sure: group.below == "" || i < commonest})
		}
	}
	return out
}
