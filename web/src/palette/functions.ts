// What one can do here, by the words that people look for it with: the palette leads to where it is
// done.
import { can, person, session } from '../api/client'
import { compact, turnDensity } from '../density'
import { path } from '../router'
import { theme, turnTheme } from '../theme'
import type { IconName } from '../ui'
import { t } from '../words'

/** A function: it is done on the page of href, or by run. words are found besides its name. */
export interface Deed { href: string; name: string; icon: IconName; words: string; run?: () => void }

/** What pages are looked for by besides their names. */
const wordsOfPages: Record<string, string> = {
  '/team': 'invite colleague member role access share permission user', '/tokens': 'api key token access read-only', '/connect': 'api curl smtp imap mcp assistant client app openapi',
  '/webhooks': 'event callback notify delivery', '/sent': 'delivery log bounced status', '/sent/suppressions': 'unsubscribe complaint block bounce', '/sent/lookup': 'trace find', '/sent/reputation': 'bounce rate complaint spam',
  '/approvals': 'review held draft', '/jobs': 'running import export', '/account': 'usage limits plan universal inbox warm-up', '/account/dns': 'provider cloudflare route53 hetzner', '/audit': 'who did history',
  '/settings': 'server configuration option', '/host': 'server health status disk queue certificate check', '/backups': 'backup restore drill snapshot s3', '/accounts': 'tenant customer limits', '/requests': 'api curl call log',
  '/profile': 'password passkey two-factor 2fa totp session sign-in', '/mailboxes': 'user address account', '/mailboxes/bulk': 'import csv many', '/mailboxes/groups': 'distribution list', '/domains/add': 'new buy move',
}

/** What a page is looked for by besides its name. */
export function wordsOf(href: string): string {
  return href === '/compose' ? t('palette.words.compose') : wordsOfPages[href] ?? ''
}

/** The tab of the thing whose page is open, else the list in which one chooses it. */
function tabOf(list: string, tab: string): string {
  const id = path.value.match(`^${list}/([^/]*\\d[^/]*)`)?.[1]
  return id ? `${list}/${id}${tab}` : list
}

type Row = [href: string, name: string, icon: IconName, words: string]

function ofTeam(): Row[] {
  const mailbox = (tab: string) => tabOf('/mailboxes', tab), domain = (tab: string) => tabOf('/domains', tab)
  return [
    ['/team', 'Invite colleagues', 'team', 'access give permission role share'],
    [mailbox('/access'), 'Access to a mailbox', 'team', 'share give colleague member permission'],
    [mailbox('/reply'), 'Automatic reply', 'clock', 'vacation holiday away out of office autoresponder mailbox'],
    [mailbox('/addresses'), 'Aliases', 'mail', 'alias address mailbox'],
    [mailbox('/rules'), 'Rules of a mailbox', 'filter', 'filter sort sieve move'],
    [mailbox(''), 'Forwarding', 'forward', 'forward redirect copy mailbox'],
    [mailbox('/access'), 'Mail clients and app passwords', 'key', 'access imap smtp phone outlook thunderbird password recovery mailbox'],
    [domain('/dns'), 'DNS records', 'globe', 'spf dkim mx nameserver check domain'],
    [domain('/dmarc'), 'DMARC policy', 'shield', 'quarantine reject spoofing domain'],
    [domain('/reports'), 'DMARC and TLS reports', 'shield', 'tls-rpt domain'],
    [domain('/mail'), 'Catch-all, relay and web redirect', 'globe', 'forward website domain'],
    ['/profile', 'Change your password', 'key', 'password'],
    ...(session.value!.operator ? [
      ['/settings?q=trash', 'Days until Trash and Junk are emptied', 'trash', 'retention keep delete empty'],
      ['/settings?q=limit', 'Limits of the server', 'wrench', 'limits quota rate'],
      ['/backups', 'Backup drill and restore', 'archive', 'restore drill test'],
      ['/host', 'Server health', 'server', 'status check disk'],
    ] satisfies Row[] : []),
    ['/docs', 'Documentation', 'book', 'docs help guide manual'],
    ['/docs/api', 'API reference', 'book', 'api curl docs python javascript go documentation'],
  ]
}

function ofPerson(): Row[] {
  return [
    ['/me', t('away.title'), 'clock', t('palette.words.away')], ['/me', t('rule.title'), 'filter', t('palette.words.rules')], ['/me', t('me.forward'), 'forward', t('palette.words.forward')],
    ['/me', t('me.password.change'), 'key', ''], ['/me', t('apps.title'), 'key', t('palette.words.apps')], ['/me', t('factor.title'), 'shield', '2FA TOTP'], ['/me', t('me.name'), 'pencil', ''], ['/me', t('me.language'), 'globe', ''],
  ]
}

/** The functions that are there for the viewer. */
export function deeds(): Deed[] {
  const dark = theme.value === 'dark'
  return [
    ...(person() ? ofPerson() : ofTeam()).map(([href, name, icon, words]): Deed => ({ href, name, icon, words, ...(href.startsWith('/docs') && { run: () => { open(href, '_blank', 'noopener') } }) })),
    { href: '', name: t(dark ? 'shell.light' : 'shell.dark'), icon: dark ? 'sun' : 'moon', words: t('palette.words.theme'), run: turnTheme },
    ...(can('list_inbox') ? [{ href: '', name: t(compact.value ? 'ui.comfortable' : 'ui.compact'), icon: compact.value ? 'rows' as const : 'rows-dense' as const, words: t('palette.words.density'), run: turnDensity }] : []),
  ]
}
