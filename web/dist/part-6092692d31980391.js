import{a,b,c}from"./part-5537333d574d4966.js";import"./part-3313d859a7602aff.js";export{b as EditRule,a as Rules,c as Vacation};
