import{a,b,c}from"./part-6b8980c9a3365975.js";import"./part-a3cd72195c864b6b.js";export{b as EditRule,a as Rules,c as Vacation};
