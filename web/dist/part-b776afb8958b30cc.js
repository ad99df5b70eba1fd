import{a,b,c,d,e,f}from"./part-45623f389fec0e24.js";import"./part-fb1cdce3c18ef7b3.js";export{b as EditRule,f as ReplyFields,a as Rules,c as Vacation,d as replyOf,e as saveReply};
